"""Group, instance and layer normalisation as layers; their variables are `gamma` and `beta`."""

# pyright: reportPrivateUsage=false
# Pyright does not know Keras's base class, and takes its subclasses for no subclass of anything.

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from ipujax.ground import Json, Keywords, PyTree, check
from ipujax.keras.layers.shared import (
    Layer,
    convert_variable,
    keras,
    refuse_unsupported,
    resolve_initializer,
    serializable,
)
from ipujax.operators import normalization_ops as normalization_ops

_UNSUPPORTED: Keywords = dict.fromkeys(
    ("beta_regularizer", "gamma_regularizer", "beta_constraint", "gamma_constraint")
)


class _Normalization(Layer):
    """The base of the normalisation layers: gamma and beta, one value for each channel."""

    def __init__(
        self,
        center: bool,
        scale: bool,
        epsilon: float,
        beta_initializer: Any,
        gamma_initializer: Any,
        **of_keras: Any,
    ):
        super().__init__(**of_keras)
        self.center = check.require_flag(center, f"the center of {self.name}")
        self.scale = check.require_flag(scale, f"the scale of {self.name}")
        self.epsilon = epsilon
        self.beta_initializer = resolve_initializer(beta_initializer, "zeros")
        self.gamma_initializer = resolve_initializer(gamma_initializer, "ones")
        self.supports_masking = True

    def _make_parameters(self, channels: int) -> None:
        self.gamma = self.beta = None
        if self.scale:
            of_gamma = self.gamma_initializer
            self.gamma = self.add_weight((channels,), initializer=of_gamma, name="gamma")
        if self.center:
            of_beta = self.beta_initializer
            self.beta = self.add_weight((channels,), initializer=of_beta, name="beta")

    def _operator_arguments(self) -> Keywords:
        """Returns the arguments that all functions of `normalization_ops` take."""
        arguments: Keywords = {"center": self.center, "scale": self.scale}
        for name in ("gamma", "beta"):
            variable = getattr(self, name)
            arguments[name] = (
                None if variable is None else convert_variable(variable, self.compute_dtype)
            )
        return arguments | {"epsilon": self.epsilon, "scope": self.name}

    def get_config(self) -> dict[str, Json]:
        """Returns the arguments of the layer."""
        return super().get_config() | {
            "center": self.center,
            "scale": self.scale,
            "epsilon": self.epsilon,
            "beta_initializer": keras.initializers.serialize(self.beta_initializer),
            "gamma_initializer": keras.initializers.serialize(self.gamma_initializer),
        }


class _ChannelNormalization(_Normalization):
    """The base of the layers that normalise over groups of channels."""

    def __init__(self, channels_axis: int, **arguments: Any):
        super().__init__(**arguments)
        self.channels_axis = check.require_integer(
            channels_axis, f"the channels_axis of {self.name}"
        )

    def build(self, input_shape: object) -> None:
        """Makes `gamma` and `beta`, `[channels]` each."""
        channels = _check_extents(self.name, input_shape, [self.channels_axis])
        self._make_parameters(channels[0])

    def get_config(self) -> dict[str, Json]:
        """Returns the arguments of the layer."""
        return super().get_config() | {"channels_axis": self.channels_axis}


@check.guard
@serializable
class GroupNormalization(_ChannelNormalization):
    """Normalises each example over groups of channels.

    Seed 001, 18.13; on `normalization_ops.group_norm`, which says what inputs may be. Statistics
    are those of the inputs, in training or not.

    Args:
      dtype: the dtype of variables, inputs and results, or a dtype policy of Keras; None for
        Keras's default.
      groups: the number of groups, which must divide the channels.
      channels_axis: 1 or the last axis; may count from the end.
      center: whether there is an offset, `beta`.
      scale: whether there is a scale, `gamma`.
      epsilon: what is added to variances.
      beta_initializer: an initializer of Keras, or its name; None for zeros.
      gamma_initializer: an initializer of Keras, or its name; None for ones.
      strided_channel_grouping: channel c is in group c mod `groups`; otherwise groups are
        neighbouring channels.
      trainable: whether `gamma` and `beta` are.
      name: of the layer.

    Raises:
      OperatorError: (a `ValueError`) when built, an axis that the inputs do not have, or of unknown
        extent; when called, inputs that `normalization_ops.group_norm` refuses.
      ConfigTypeError: (a `TypeError`) for arguments of wrong types.
    """

    def __init__(
        self,
        dtype: DTypeLike = jnp.float32,
        groups: int = 2,
        channels_axis: int = -1,
        center: bool = True,
        scale: bool = True,
        epsilon: float = 0.001,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        strided_channel_grouping: bool = True,
        trainable: bool = True,
        name: str | None = None,
    ):
        super().__init__(
            channels_axis, center=center, scale=scale, epsilon=epsilon,
            beta_initializer=beta_initializer, gamma_initializer=gamma_initializer,
            dtype=dtype, trainable=trainable, name=name,
        )  # fmt: skip
        self.groups = check.require_integer(groups, f"the groups of {self.name}")
        argument_name = f"the strided_channel_grouping of {self.name}"
        self.strided_channel_grouping = check.require_flag(strided_channel_grouping, argument_name)

    def call(self, inputs: PyTree, training: bool | None = None) -> PyTree:
        """Returns the inputs, normalised; `training` changes nothing."""
        strided, arguments = self.strided_channel_grouping, self._operator_arguments()
        return normalization_ops.group_norm(
            inputs, self.groups, self.channels_axis, strided_channel_grouping=strided, **arguments
        )

    def get_config(self) -> dict[str, Json]:
        """Returns the arguments of the layer."""
        strided = self.strided_channel_grouping
        arguments = {"groups": self.groups, "strided_channel_grouping": strided}
        return super().get_config() | arguments


@check.guard
@serializable
class InstanceNormalization(_ChannelNormalization):
    """Normalises each channel of each example.

    Seed 001, 18.13; on `normalization_ops.instance_norm`. The arguments and errors are those of
    `GroupNormalization`.
    """

    def __init__(
        self,
        dtype: DTypeLike = jnp.float32,
        channels_axis: int = -1,
        center: bool = True,
        scale: bool = True,
        epsilon: float = 0.001,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        trainable: bool = True,
        name: str | None = None,
    ):
        super().__init__(
            channels_axis, center=center, scale=scale, epsilon=epsilon,
            beta_initializer=beta_initializer, gamma_initializer=gamma_initializer,
            dtype=dtype, trainable=trainable, name=name,
        )  # fmt: skip

    def call(self, inputs: PyTree, training: bool | None = None) -> PyTree:
        """Returns the inputs, normalised; `training` changes nothing."""
        return normalization_ops.instance_norm(
            inputs, self.channels_axis, **self._operator_arguments()
        )


@check.guard
@serializable
class LayerNormalization(_Normalization):
    """Normalises over the given axes, for each index along the others.

    Seed 001, 18.13; on `normalization_ops.layer_norm`. `gamma` and `beta` hold one value for each
    element along the axes, all in one dimension.

    Args:
      dtype: the dtype of variables, inputs and results, or a dtype policy of Keras; None for
        Keras's default.
      axis: an axis, or several; they may count from the end.
      epsilon: what is added to variances.
      center: whether there is an offset, `beta`.
      scale: whether there is a scale, `gamma`.
      beta_initializer: an initializer of Keras, or its name.
      gamma_initializer: an initializer of Keras, or its name.
      trainable: whether `gamma` and `beta` are.
      name: of the layer.
      **kwargs: arguments of `keras.layers.Layer`.

    Raises:
      OperatorError: (a `ValueError`) when built, axes that the inputs do not have, given twice or
        of unknown extent; arguments that only Keras's own `LayerNormalization` has.
      ConfigTypeError: (a `TypeError`) for arguments of wrong types.
    """

    def __init__(
        self,
        dtype: DTypeLike = jnp.float32,
        axis: int | Sequence[int] = -1,
        epsilon: float = 0.001,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ):
        instead = "keras.layers.LayerNormalization"
        refuse_unsupported("LayerNormalization", kwargs, _UNSUPPORTED, instead)
        of_keras = {key: kwargs[key] for key in kwargs if key not in _UNSUPPORTED}
        super().__init__(
            center, scale, epsilon, beta_initializer, gamma_initializer,
            dtype=dtype, trainable=trainable, name=name, **of_keras,
        )  # fmt: skip
        several = isinstance(axis, list | tuple)
        argument_name = f"the axis of {self.name}"
        self.axis = [
            check.require_integer(entry, argument_name) for entry in (axis if several else [axis])
        ]

    def build(self, input_shape: object) -> None:
        """Makes `gamma` and `beta`."""
        self._make_parameters(math.prod(_check_extents(self.name, input_shape, self.axis)))

    def call(self, inputs: PyTree, training: bool | None = None) -> PyTree:
        """Returns the inputs, normalised; `training` changes nothing."""
        axes = sorted(axis % inputs.ndim for axis in self.axis)
        last = range(-len(axes), 0)
        inputs_with_axes_last = jnp.moveaxis(inputs, axes, last)
        rows: jax.Array = inputs_with_axes_last.reshape(
            -1, math.prod(inputs_with_axes_last.shape[-len(axes) :])
        )
        normalized = normalization_ops.layer_norm(rows, **self._operator_arguments())
        return jnp.moveaxis(normalized.reshape(inputs_with_axes_last.shape), last, axes)

    def get_config(self) -> dict[str, Json]:
        """Returns the arguments of the layer."""
        return super().get_config() | {"axis": self.axis}


def _check_extents(layer: str, shape: Any, axes: Sequence[int]) -> list[int]:
    """Returns the extents of inputs along some axes.

    Raises:
      OperatorError: the inputs lack an axis, or it is given twice or of unknown extent.
    """
    rank = len(shape)
    if any(not -rank <= axis < rank for axis in axes) or len({a % rank for a in axes}) < len(axes):
        raise check.value_error(
            f"{layer} is to normalise axis {list(axes)} of inputs with {rank} axes",
            f"give axes from {-rank} to {rank - 1}, each once",
        )
    extents = [shape[axis] for axis in axes]
    if None in extents:
        raise check.value_error(
            f"{layer} was given inputs of shape {list(shape)}, unknown along the axis {list(axes)}",
            "give that dimension an extent: its variables have one value for each element",
        )
    return extents
