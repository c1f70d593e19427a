"""Checks of the arguments that CTC losses and decoders share."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ipujax.ground import HALF_OR_SINGLE, PyTree, check


def check_time_major(data: PyTree, argument: str) -> jax.Array:
    """Checks data `[time, batch, classes]` of float16 or float32 with a step and a class."""
    values = check.require_array(data, argument)
    if values.dtype.name not in HALF_OR_SINGLE:
        raise check.type_error(
            f"{argument} are {values.dtype}", "cast them to jnp.float32 or jnp.float16"
        )
    check.require_shape(values, ("max_time", "batch_size", "num_classes"), argument)
    if 0 in (values.shape[0], values.shape[2]):
        raise check.value_error(
            f"{argument} have shape {list(values.shape)}",
            "give at least one time step and one class",
        )
    return values


def check_blank_index(index: object, classes: int, operator: str) -> int:
    """Returns the class of blanks, counted from 0; a negative index counts from the end."""
    blank_index = check.require_integer(index, f"blank_index of {operator}")
    if not -classes <= blank_index < classes:
        raise check.value_error(
            f"blank_index of {operator} is {blank_index}, but there are {classes} classes",
            f"give one of 0 to {classes - 1}, or -1 for the last class",
        )
    return blank_index % classes


def check_lengths(
    given_lengths: object, shape: tuple[int, ...], longest: int, argument: str
) -> jax.Array:
    """Returns lengths `[batch]` int32 of data `[time, batch, classes]` or of its labels.

    Args:
      given_lengths: if known while tracing, from 0 to `longest`.
      shape: the shape of the data.
      longest: the largest possible length.
      argument: the name of the lengths, in the plural, for errors.
    """
    values = check.require_integers(given_lengths, ("batch_size",), argument)
    time, batch, _ = shape
    if len(values) == time != batch:
        raise check.value_error(
            f"{argument} are {time}, but there are {batch} examples in data of shape {list(shape)}",
            "data are time-major, [max_time, batch_size, num_classes]; if these have the batch "
            "first, swap their first two axes with jnp.swapaxes(data, 0, 1)",
        )
    check.require_shape(values, (batch,), argument)
    check.require_in_range(given_lengths, longest + 1, argument)
    return values


def log_probabilities(logits: jax.Array) -> jax.Array:
    """Returns the log probabilities of classes in float32, whatever the dtype of the logits."""
    return jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
