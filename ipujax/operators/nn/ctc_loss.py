"""CTC (connectionist temporal classification) losses, of logits or log probabilities."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from ipujax.ground import HALF_OR_SINGLE, PyTree, check, parse_dtype, values_if_known
from ipujax.operators.nn import ctc_arguments
from ipujax.operators.nn.ctc_alignments import Problem, negative_log_likelihood

_NAME = "ctc_loss"
_Arguments = ParamSpec("_Arguments")


@check.guard
def ctc_loss_v2(
    labels: ArrayLike,
    logits: ArrayLike,
    label_length: ArrayLike,
    logit_length: ArrayLike,
    blank_index: int,
    out_dtype: DTypeLike | None = None,
    name: str | None = None,
) -> jax.Array:
    """Computes the CTC loss of logits: minus the log of the labels' probabilities.

    Seed 001, 18.14.7; facts ctc.loss_12, ctc.shapes, ctc.out_dtype_down. All is computed in
    float32. What no alignment explains, such as labels longer than the data, has an infinite loss
    and zero gradients. Values that mean nothing (a label that is blank or no class, lengths below
    0 or beyond the arrays) are errors if they are known while tracing; at run time they make the
    example's loss NaN and its gradients zero. Labels beyond `label_length` do not matter.
    Derivatives go backwards only (`jax.grad`, `jax.vjp`).

    Args:
      labels: `[batch_size, max_label_length]` integers.
      logits: `[max_time, batch_size, num_classes]`, float16 or float32.
      label_length: `[batch_size]` integers; 0 is an empty label.
      logit_length: `[batch_size]` integers, the valid time steps.
      blank_index: the class of blanks; a negative one counts from the last class.
      out_dtype: float16 or float32; that of the logits by default.
      name: the operation's named scope, "ctc_loss" by default.

    Returns:
      The losses, `[batch_size]` of `out_dtype`.

    Raises:
      ConfigTypeError: (a `TypeError`) arrays of wrong dtypes, or a blank index that is no int.
      OperatorError: (a `ValueError`) shapes that do not fit, a blank index outside the classes,
        known values that mean nothing, or an `out_dtype` other than float16 and float32, or
        float16 for float32 logits.
    """
    array = ctc_arguments.check_time_major(logits, "the logits of ctc_loss_v2")
    dtype = _check_out_dtype(out_dtype, array, "ctc_loss_v2")
    with check.operator_scope(name or _NAME):
        log_probs = ctc_arguments.log_probabilities(array)
        losses = _compute_losses(
            "ctc_loss_v2", labels, log_probs, label_length, logit_length, blank_index
        )
        return losses.astype(dtype)


@check.guard
def ctc_loss_with_log_probs(
    labels: ArrayLike,
    data: PyTree,
    label_length: ArrayLike,
    data_length: ArrayLike,
    blank_index: int,
    out_dtype: DTypeLike | None = None,
    name: str | None = None,
) -> jax.Array:
    """Computes the CTC loss of log probabilities; otherwise as `ctc_loss_v2`.

    The gradient is the original's (Popnn's, and what TensorFlow's tests of it ask for): that of
    the logits whose log softmax the data are, exp(data) minus the chances of the classes given
    the label. What goes on to a log softmax before is the same as with the derivative of the loss
    itself, which lacks exp(data).

    Args:
      labels: as there.
      data: `[max_time, batch_size, num_classes]` natural logarithms of probabilities, float16 or
        float32. The loss takes them as they are, and does not normalise them.
      label_length: as there.
      data_length: `[batch_size]` integers, the valid time steps.
      blank_index: as there.
      out_dtype: as there.
      name: as there.

    Returns:
      The losses, `[batch_size]` of `out_dtype`.

    Raises:
      ConfigTypeError: (a `TypeError`) as there.
      OperatorError: (a `ValueError`) as there.
    """
    array = ctc_arguments.check_time_major(data, "the data of ctc_loss_with_log_probs")
    dtype = _check_out_dtype(out_dtype, array, "ctc_loss_with_log_probs")
    with check.operator_scope(name or _NAME):
        log_probs = _use_gradient_of_logits(array.astype(jnp.float32))
        losses = _compute_losses(
            "ctc_loss_with_log_probs", labels, log_probs, label_length, data_length, blank_index
        )
        return losses.astype(dtype)


def _make_deprecated_alias(
    name: str, successor: Callable[_Arguments, jax.Array]
) -> Callable[_Arguments, jax.Array]:
    """Builds a deprecated alias of a loss, which warns and then calls its successor."""

    @check.guard
    @functools.wraps(successor)
    def warn_and_call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> jax.Array:
        instead = f"nn_ops.{name} is deprecated; use nn_ops.{successor.__name__}"
        warnings.warn(instead, DeprecationWarning, stacklevel=3)
        return successor(*args, **kwargs)

    warn_and_call.__name__ = warn_and_call.__qualname__ = name
    warn_and_call.__doc__ = (
        f"Deprecated, as in the original (seed 001, 18.14.7): use `{successor.__name__}`."
    )
    return warn_and_call


ctc_loss = _make_deprecated_alias("ctc_loss", ctc_loss_with_log_probs)
ctc_loss_with_logits = _make_deprecated_alias("ctc_loss_with_logits", ctc_loss_v2)


def _compute_losses(
    function: str,
    labels: ArrayLike,
    log_probs: jax.Array,
    label_length: ArrayLike,
    steps: object,
    blank: object,
) -> jax.Array:
    """Computes the losses in float32; NaN where labels or lengths make no sense."""
    time, batch, classes = log_probs.shape
    index = ctc_arguments.check_blank_index(blank, classes, function)
    shape, of_labels = log_probs.shape, f"the labels of {function}"
    data_lengths = ctc_arguments.check_lengths(
        steps, shape, time, f"the data lengths of {function}"
    )
    classes_of = check.require_integers(labels, (batch, "max_label_length"), of_labels)
    longest = classes_of.shape[1]
    lengths = ctc_arguments.check_lengths(
        label_length, shape, longest, f"the label lengths of {function}"
    )
    _check_labels(labels, label_length, index, classes, of_labels)

    matters = jnp.arange(longest) < lengths[:, None]
    is_label = (classes_of >= 0) & (classes_of < classes) & (classes_of != index)
    makes_sense = jnp.all(is_label | ~matters, axis=1)
    makes_sense &= (lengths >= 0) & (lengths <= longest)
    makes_sense &= (data_lengths >= 0) & (data_lengths <= time)

    problem = Problem(
        jnp.clip(classes_of, 0, classes - 1),
        jnp.clip(lengths, 0, longest),
        jnp.clip(data_lengths, 0, time),
    )
    losses = negative_log_likelihood(log_probs, problem, index)
    return jnp.where(makes_sense, losses, jnp.nan)


def _check_labels(
    labels: ArrayLike, lengths: ArrayLike, blank: int, classes: int, argument: str
) -> None:
    """Raises an error for labels that make no sense, if they and their lengths are known."""
    values, ends = values_if_known(labels), values_if_known(lengths)
    if values is None or ends is None:
        return
    used = values[np.arange(values.shape[1]) < ends[:, None]]
    check.require_in_range(used, classes, argument)
    if (used == blank).any():
        raise check.value_error(
            f"{argument} contain {blank}, which is the blank",
            "labels are other classes than blank_index; those beyond label_length do not matter",
        )


@jax.custom_vjp
def _use_gradient_of_logits(log_probs: jax.Array) -> jax.Array:
    """Returns log probabilities whose gradient is that of the logits behind them."""
    return log_probs


def _save_log_probs_for_gradient(log_probs: jax.Array) -> tuple[jax.Array, jax.Array]:
    return log_probs, log_probs


def _pull_back_through_log_softmax(log_probs: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
    return (cotangent - jnp.exp(log_probs) * jnp.sum(cotangent, axis=-1, keepdims=True),)


_use_gradient_of_logits.defvjp(_save_log_probs_for_gradient, _pull_back_through_log_softmax)


def _check_out_dtype(requested_dtype: DTypeLike | None, data: jax.Array, function: str) -> np.dtype:
    if requested_dtype is None:
        return data.dtype
    argument, fix = f"out_dtype of {function}", "give jnp.float16 or jnp.float32"
    dtype = parse_dtype(requested_dtype)
    if dtype is None:
        raise check.type_error(f"{argument} is {requested_dtype!r}", fix)
    if dtype.name not in HALF_OR_SINGLE:
        raise check.value_error(f"{argument} is {dtype}", fix)
    if dtype == jnp.float16 and data.dtype == jnp.float32:
        raise check.value_error(
            f"{argument} is float16, but its data are float32",
            "leave out_dtype out, or cast the losses yourself",
        )
    return dtype
