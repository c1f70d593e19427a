"""What CTC's loss and decoders share: their data, checked while tracing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ipujax.checks.arguments import HALF_OR_SINGLE
from ipujax.checks.arrays import check


def time_major(data: Any, what: str) -> jax.Array:
    """The data `[time, batch, classes]`, float16 or float32, with at least one step and class."""
    values = check.array(data, what)
    if values.dtype.name not in HALF_OR_SINGLE:
        raise check.refuse_type(
            f"{what} are {values.dtype}", "cast them to jnp.float32 or jnp.float16"
        )
    check.shape(values, ("max_time", "batch_size", "num_classes"), what)
    if 0 in (values.shape[0], values.shape[2]):
        raise check.refuse(
            f"{what} have shape {list(values.shape)}", "give at least one time step and one class"
        )
    return values


def blank(index: Any, classes: int, what: str) -> int:
    """The blank's class, counted from 0; a negative index counts from the last class."""
    asked = check.integer(index, f"blank_index of {what}")
    if not -classes <= asked < classes:
        raise check.refuse(
            f"blank_index of {what} is {asked}, but there are {classes} classes",
            f"give one of 0 to {classes - 1}, or -1 for the last class",
        )
    return asked % classes


def lengths(asked: Any, shape: tuple[int, ...], longest: int, what: str) -> jax.Array:
    """Lengths `[batch]` int32 of data of shape `[time, batch, classes]`, or of their labels.

    Args:
      asked: known ones must be from 0 to `longest`.
      shape: that of the data.
      longest: the extent of what they are lengths of.
      what: they are, in the plural, for errors.
    """
    values = check.integers(asked, ("batch_size",), what)
    time, batch, _ = shape
    if len(values) == time != batch:
        raise check.refuse(
            f"{what} are {time}, but there are {batch} examples in data of shape {list(shape)}",
            "data are time-major, [max_time, batch_size, num_classes]; if these have the batch "
            "first, swap their first two axes with jnp.swapaxes(data, 0, 1)",
        )
    check.shape(values, (batch,), what)
    check.inside(asked, longest + 1, what)
    return values


def log_probabilities(logits: jax.Array) -> jax.Array:
    """Natural logarithms of the classes' probabilities, float32 whatever the logits are."""
    return jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
