"""CTC (connectionist temporal classification) losses, of logits or log probabilities."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.checks.arguments import HALF_OR_SINGLE, dtype_of
from ipujax.checks.arrays import check, known
from ipujax.operators.nn import ctc_arguments
from ipujax.operators.nn.ctc_alignments import Problem, negative_log_likelihood

_NAME = "ctc_loss"
_Arguments = ParamSpec("_Arguments")


@check.guard
def ctc_loss_v2(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    blank_index: int,
    out_dtype: Any = None,
    name: str | None = None,
) -> jax.Array:
    """The CTC loss of logits: minus the natural logarithm of the labels' probabilities.

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
    array = ctc_arguments.time_major(logits, "the logits of ctc_loss_v2")
    dtype = _out_dtype(out_dtype, array, "ctc_loss_v2")
    with check.scope(name or _NAME):
        log_probs = ctc_arguments.log_probabilities(array)
        losses = _losses("ctc_loss_v2", labels, log_probs, label_length, logit_length, blank_index)
        return losses.astype(dtype)


@check.guard
def ctc_loss_with_log_probs(
    labels: Any,
    data: Any,
    label_length: Any,
    data_length: Any,
    blank_index: int,
    out_dtype: Any = None,
    name: str | None = None,
) -> jax.Array:
    """The CTC loss of log probabilities; otherwise as `ctc_loss_v2`.

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
    array = ctc_arguments.time_major(data, "the data of ctc_loss_with_log_probs")
    dtype = _out_dtype(out_dtype, array, "ctc_loss_with_log_probs")
    with check.scope(name or _NAME):
        log_probs = _of_logits(array.astype(jnp.float32))
        losses = _losses(
            "ctc_loss_with_log_probs", labels, log_probs, label_length, data_length, blank_index
        )
        return losses.astype(dtype)


def _deprecated(
    name: str, successor: Callable[_Arguments, jax.Array]
) -> Callable[_Arguments, jax.Array]:
    """What the original had under another name: it warns, and does what its successor does."""

    @check.guard
    @functools.wraps(successor)
    def loss(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> jax.Array:
        instead = f"nn_ops.{name} is deprecated; use nn_ops.{successor.__name__}"
        warnings.warn(instead, DeprecationWarning, stacklevel=3)
        return successor(*args, **kwargs)

    loss.__name__ = loss.__qualname__ = name
    loss.__doc__ = (
        f"Deprecated, as in the original (seed 001, 18.14.7): use `{successor.__name__}`."
    )
    return loss


ctc_loss = _deprecated("ctc_loss", ctc_loss_with_log_probs)
ctc_loss_with_logits = _deprecated("ctc_loss_with_logits", ctc_loss_v2)


def _losses(
    function: str, labels: Any, log_probs: jax.Array, label_length: Any, steps: Any, blank: Any
) -> jax.Array:
    """The losses, float32: NaN where the values of labels or lengths make no sense."""
    time, batch, classes = log_probs.shape
    index = ctc_arguments.blank(blank, classes, function)
    shape, of_labels = log_probs.shape, f"the labels of {function}"
    data_lengths = ctc_arguments.lengths(steps, shape, time, f"the data lengths of {function}")
    classes_of = check.integers(labels, (batch, "max_label_length"), of_labels)
    longest = classes_of.shape[1]
    lengths = ctc_arguments.lengths(
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


def _check_labels(labels: Any, lengths: Any, blank: int, classes: int, what: str) -> None:
    """Refuses labels that mean nothing, as far as they and their lengths are known."""
    values, ends = known(labels), known(lengths)
    if values is None or ends is None:
        return
    used = values[np.arange(values.shape[1]) < ends[:, None]]
    check.inside(used, classes, what)
    if (used == blank).any():
        raise check.refuse(
            f"{what} contain {blank}, which is the blank",
            "labels are other classes than blank_index; those beyond label_length do not matter",
        )


@jax.custom_vjp
def _of_logits(log_probs: jax.Array) -> jax.Array:
    """Log probabilities whose gradient is the one of the logits that they are made of."""
    return log_probs


def _keep(log_probs: jax.Array) -> tuple[jax.Array, jax.Array]:
    return log_probs, log_probs


def _through_log_softmax(log_probs: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
    return (cotangent - jnp.exp(log_probs) * jnp.sum(cotangent, axis=-1, keepdims=True),)


_of_logits.defvjp(_keep, _through_log_softmax)


def _out_dtype(asked: Any, data: jax.Array, function: str) -> Any:
    if asked is None:
        return data.dtype
    what, fix = f"out_dtype of {function}", "give jnp.float16 or jnp.float32"
    dtype = dtype_of(asked)
    if dtype is None:
        raise check.refuse_type(f"{what} is {asked!r}", fix)
    if dtype.name not in HALF_OR_SINGLE:
        raise check.refuse(f"{what} is {dtype}", fix)
    if dtype == jnp.float16 and data.dtype == jnp.float32:
        raise check.refuse(
            f"{what} is float16, but its data are float32",
            "leave out_dtype out, or cast the losses yourself",
        )
    return dtype
