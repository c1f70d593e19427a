"""Group, layer, instance and batch normalisation."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.ground import PyTree, check
from lowering import ops


@check.guard
def group_norm(
    inputs: PyTree,
    groups: int = 2,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-06,
    param_initializers: object = None,
    reuse: object = None,
    variables_collections: object = None,
    training: bool = True,
    trainable: bool = True,
    scope: str | None = None,
    strided_channel_grouping: bool = True,
    *,
    gamma: object = None,
    beta: object = None,
) -> jax.Array:
    """Normalises each example over groups of channels (seed 001, 18.14.8).

    Statistics are those of the inputs, over all axes but the first, for each group of channels.
    The facts `norms.strided` and `norms.defaults` say how channels are grouped.

    Args:
      inputs: floats, `[batch, ..., channels]` or `[batch, channels, ...]`.
      groups: how many groups there are; they must divide the channels.
      channels_axis: 1 or the last axis; may count from the end.
      center: whether there is an offset, `beta`.
      scale: whether there is a scale, `gamma`.
      epsilon: what is added to variances.
      param_initializers: must be None: `gamma` and `beta` are arguments.
      reuse: whether the parameters are those of an earlier call, which then are given again, with
        a `scope`; False and None say nothing.
      variables_collections: must be None, as `param_initializers`.
      training: True or False; the numbers are the same, since there are no moving statistics.
      trainable: False lets no gradient pass to `gamma` and `beta`.
      scope: a named scope for the operation.
      strided_channel_grouping: channel c is in group c mod `groups`; otherwise groups are
        neighbouring channels.
      gamma: `[channels]`, ones by default.
      beta: `[channels]`, zeros by default.

    Returns:
      An array like `inputs`.

    Raises:
      OperatorError: (a `ValueError`) for inputs that are no floats or have less than two axes,
        another `channels_axis`, groups that do not divide the channels, parameters of other
        shapes or where `center` or `scale` switches them off, an `epsilon` below zero.
      ConfigTypeError: (a `TypeError`) for arguments of wrong types, and for those that must be
        None.
    """
    _refuse_variables("group_norm", param_initializers, variables_collections)
    _check_reuse("group_norm", reuse, scope, center, scale, gamma, beta)
    call = _Call("group_norm", inputs, channels_axis, epsilon, scope)
    check.require_flag(training, "the training of group_norm")
    parameters = call.check_parameters(gamma, beta, center, scale, trainable)
    strided = check.require_flag(
        strided_channel_grouping, "the strided_channel_grouping of group_norm"
    )
    return _normalise_by_groups(
        call, check.require_integer(groups, "the groups of group_norm"), strided, parameters
    )


@check.guard
def layer_norm(
    inputs: PyTree,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-06,
    param_initializers: object = None,
    reuse: object = None,
    variables_collections: object = None,
    training: bool = True,
    trainable: bool = True,
    scope: str | None = None,
    *,
    gamma: object = None,
    beta: object = None,
) -> jax.Array:
    """Normalises each example over all its axes: `group_norm` with one group.

    `gamma` and `beta` are `[channels]` all the same (seed 001, 18.14.8; fact
    `norms.layer_instance`). Arguments, result and errors are those of `group_norm`.
    """
    _refuse_variables("layer_norm", param_initializers, variables_collections)
    _check_reuse("layer_norm", reuse, scope, center, scale, gamma, beta)
    call = _Call("layer_norm", inputs, channels_axis, epsilon, scope)
    check.require_flag(training, "the training of layer_norm")
    parameters = call.check_parameters(gamma, beta, center, scale, trainable)
    return _normalise_by_groups(call, 1, True, parameters)


@check.guard
def instance_norm(
    inputs: PyTree,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-06,
    param_initializers: object = None,
    reuse: object = None,
    variables_collections: object = None,
    training: bool = True,
    trainable: bool = True,
    scope: str | None = None,
    *,
    gamma: object = None,
    beta: object = None,
) -> jax.Array:
    """Normalises each channel of each example: `group_norm` with as many groups as channels.

    Arguments, result and errors are those of `group_norm` (seed 001, 18.14.8; fact
    `norms.layer_instance`).
    """
    _refuse_variables("instance_norm", param_initializers, variables_collections)
    _check_reuse("instance_norm", reuse, scope, center, scale, gamma, beta)
    call = _Call("instance_norm", inputs, channels_axis, epsilon, scope)
    check.require_flag(training, "the training of instance_norm")
    parameters = call.check_parameters(gamma, beta, center, scale, trainable)
    return _normalise_by_groups(call, call.channels, True, parameters)


@check.guard
def batch_norm(
    inputs: PyTree,
    *,
    gamma: object,
    beta: object,
    mean: object = None,
    variance: object = None,
    training: bool = True,
    epsilon: float = 1e-3,
    channels_axis: int = -1,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Normalises each channel over all examples.

    In compiled code the statistics of training are those of all the examples of
    `norms.experimental.distributed_batch_norm_replica_group_size` neighbouring replicas (fact
    `norms.dbn_g2`), and gradients flow through them.

    Args:
      inputs: floats, `[batch, ..., channels]` or `[batch, channels, ...]`.
      gamma: the scale, `[channels]`; None stands for ones.
      beta: the offset, `[channels]`; None stands for zeros.
      mean: `[channels]`, to normalise with when not training.
      variance: the same.
      training: whether statistics are taken from the inputs.
      epsilon: what is added to variances.
      channels_axis: 1 or the last axis; may count from the end.

    Returns:
      An array like `inputs`; the mean and the variance, `[channels]`, float32 at least. In
      training the variance has Bessel's correction, for moving averages; the outputs are
      normalised without it. Otherwise they are those that were given.

    Raises:
      OperatorError: (a `ValueError`) for inputs as in `group_norm`, parameters and statistics of
        other shapes, statistics given for training, or missing otherwise.
      ConfigTypeError: (a `TypeError`) for arguments of wrong types.
      CollectiveError: (a `ValueError`) when the program is compiled, if groups of replicas do not
        divide the replicas.
    """
    call = _Call("batch_norm", inputs, channels_axis, epsilon, None)
    parameters = call.check_parameters(gamma, beta, True, True, True)
    if not check.require_flag(training, "the training of batch_norm"):
        if mean is None or variance is None:
            raise check.value_error(
                "batch_norm without training needs a mean and a variance", "give both of them"
            )
        moments = (
            call.broadcast_per_channel(mean, "mean"),
            call.broadcast_per_channel(variance, "variance"),
        )
        outputs = call.normalise(*moments, parameters)
        return outputs, jnp.ravel(moments[0]), jnp.ravel(moments[1])
    if mean is not None or variance is not None:
        raise check.value_error(
            "batch_norm was given a mean or a variance for training",
            "leave them out; update moving averages with the mean and variance that it returns",
        )
    axes = (0, *call.spatial)
    centre, spread = call.compute_moments(axes, ops.norm_group_mean)
    corrected = spread * ops.bessel_correction_over_group(
        math.prod(call.wide.shape[axis] for axis in axes)
    )
    outputs = call.normalise(centre, spread, parameters)
    return outputs, jnp.ravel(centre), jnp.ravel(corrected)


def _normalise_by_groups(
    call: _Call, groups: int, strided: bool, parameters: tuple[jax.Array | None, ...]
) -> jax.Array:
    axis, channels = call.axis, call.channels
    if groups < 1 or channels % groups:
        raise check.value_error(
            f"{call.function} has {groups} groups, which are not commensurate with {channels} "
            "channels",
            "the number of groups must divide that of channels",
        )
    parts = (channels // groups, groups) if strided else (groups, channels // groups)

    def average_within_groups(moment: jax.Array) -> jax.Array:
        if groups == 1:
            return jnp.mean(moment, axis, keepdims=True)
        grouped = moment.reshape(*moment.shape[:axis], *parts, *moment.shape[axis + 1 :])
        mean = jnp.mean(grouped, axis if strided else axis + 1, keepdims=True)
        return jnp.broadcast_to(mean, grouped.shape).reshape(moment.shape)

    with check.operator_scope(call.scope):
        return call.normalise(
            *call.compute_moments(call.spatial, average_within_groups), parameters
        )


class _Call:
    """The checked arguments that all normalisation functions share."""

    def __init__(
        self, function: str, inputs: PyTree, channels_axis: object, epsilon: object, scope: object
    ) -> None:
        self.function = function
        self.inputs = check.require_floats(inputs, f"the inputs of {function}")
        self.epsilon = _check_epsilon(epsilon, function)
        given_axis = check.require_integer(channels_axis, f"the channels_axis of {function}")
        rank = self.inputs.ndim
        if rank < 2:
            raise check.value_error(
                f"{function} got inputs of shape {list(self.inputs.shape)}",
                "give at least two axes, the batch and the channels",
            )
        self.axis = given_axis + rank if given_axis < 0 else given_axis
        if self.axis not in (1, rank - 1):
            raise check.value_error(
                f"the channels_axis of {function} is {given_axis}, but inputs have {rank} axes, "
                "and only axis 1 and the last axis are supported",
                "move the channels: jnp.moveaxis(inputs, axis, -1)",
            )
        self.scope = check.require_text(scope, f"the scope of {function}", optional=True)
        self.channels: int = self.inputs.shape[self.axis]
        self.spatial = tuple(axis for axis in range(1, rank) if axis != self.axis)
        self.wide = self.inputs.astype(jnp.promote_types(self.inputs.dtype, jnp.float32))

    def broadcast_per_channel(self, values: PyTree, name: str) -> jax.Array:
        """Returns `[channels]` values in a shape that broadcasts with the inputs."""
        array = check.require_floats(values, f"the {name} of {self.function}")
        if array.shape != (self.channels,):
            raise check.value_error(
                f"the {name} of {self.function} has shape {list(array.shape)}",
                f"give one value for each channel, [{self.channels}]",
            )
        behind = (1,) * (self.inputs.ndim - 1 - self.axis)
        return array.reshape(-1, *behind).astype(self.wide.dtype)

    def check_parameters(
        self, gamma: object, beta: object, center: bool, scale: bool, trainable: bool
    ) -> tuple[jax.Array | None, ...]:
        """Returns scale and offset in shapes that fit the inputs; None where there is none."""
        fixed = not check.require_flag(trainable, f"the trainable of {self.function}")
        pair: list[jax.Array | None] = []
        for values, on, name, switch in (
            (gamma, scale, "gamma", "scale"),
            (beta, center, "beta", "center"),
        ):
            if (
                not check.require_flag(on, f"the {switch} of {self.function}")
                and values is not None
            ):
                raise check.value_error(
                    f"{self.function} was given a {name}, which {switch}=False switches off",
                    "leave out one of the two",
                )
            fitted = None if values is None else self.broadcast_per_channel(values, name)
            pair.append(lax.stop_gradient(fitted) if fixed and fitted is not None else fitted)
        return tuple(pair)

    def compute_moments(
        self, axes: tuple[int, ...], reduce_groups: Callable[[jax.Array], jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        """Computes mean and variance per channel over `axes`, then reduces them over groups."""
        mean = reduce_groups(jnp.mean(self.wide, axes, keepdims=True))
        variance = reduce_groups(ops.mean_square_deviation(self.wide, mean, axes))
        return mean, jnp.maximum(variance, 0)

    def normalise(
        self, mean: jax.Array, variance: jax.Array, parameters: tuple[jax.Array | None, ...]
    ) -> jax.Array:
        """Normalises the inputs, and applies scale and offset; in the inputs' dtype."""
        gamma, beta = parameters
        factor = lax.rsqrt(variance + self.epsilon)
        offset = 0 if beta is None else beta
        shape = factor.shape if gamma is None else jnp.broadcast_shapes(factor.shape, gamma.shape)
        if shape == self.wide.shape:  # the product of scale and factor would be as large as this
            normal = (self.wide - mean) * factor
            outputs = (normal if gamma is None else normal * gamma) + offset
        else:
            factor = factor if gamma is None else factor * gamma
            # The mean is subtracted as a constant, and its derivative goes with the offset, to
            # which it adds nothing: the backward pass then sums over the inputs half as often.
            constant = lax.stop_gradient(mean)
            outputs = (self.wide - constant) * factor + (offset + (constant - mean) * factor)
        return outputs.astype(self.inputs.dtype)


def _check_epsilon(value: object, function: str) -> float:
    argument = f"the epsilon of {function}"
    epsilon = check.require_number(value, argument, "give a Python float, as in epsilon=1e-3")
    if not 0 <= epsilon < math.inf:
        raise check.value_error(
            f"{argument} is {value}, but must be finite and not negative",
            "give a small number, as in epsilon=1e-3",
        )
    return epsilon


def _refuse_variables(function: str, *values: PyTree) -> None:
    for name, value in zip(("param_initializers", "variables_collections"), values, strict=True):
        if value is not None:
            raise check.type_error(
                f"{function} was given {name}, but makes no variables",
                "give their values: gamma=..., beta=...",
            )


def _check_reuse(
    function: str,
    reuse: object,
    scope: str | None,
    center: bool,
    scale: bool,
    gamma: object,
    beta: object,
) -> None:
    """Checks that a call that reuses parameters names their scope and is given them."""
    if not check.require_optional_flag(reuse, f"the reuse of {function}"):
        return
    if scope is None:
        raise check.value_error(
            f"{function} is to reuse its parameters without a scope", "give scope=..., too"
        )
    if (scale and gamma is None) or (center and beta is None):
        raise check.value_error(
            f"{function} is to reuse the parameters of scope {scope!r}, but makes no variables",
            "give it the same arrays as the earlier call: gamma=..., beta=...",
        )
