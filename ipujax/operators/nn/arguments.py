"""Checks of integers and shapes that the operators of `ipu.nn_ops` share, while tracing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ipujax.operators.operands import array, known, refuse, refuse_type, whole_number


def at_least_one(value: Any, what: str) -> int:
    """`value` if it is a positive integer known while tracing."""
    checked = whole_number(value, what)
    if checked < 1:
        raise refuse(f"{what} is {checked}", "give at least 1")
    return checked


def integers(value: Any, dims: tuple[int | str, ...], what: str) -> jax.Array:
    """`value` as an int32 array, if it holds integers and its shape fits.

    Args:
      value: an array.
      dims: each dimension's extent, or its name where any will do.
      what: what the values are, in the plural, for errors.
    """
    values = array(value, what)
    if not jnp.issubdtype(values.dtype, jnp.integer):
        raise refuse_type(f"{what} are {values.dtype}", "give integers, such as jnp.int32")
    check_shape(values, dims, what)
    return values.astype(jnp.int32)


def check_inside(given: Any, stop: int, what: str) -> None:
    """Refuses integers that are known while tracing and not from 0 to `stop` - 1."""
    values = known(given)
    if values is None:
        return
    outside = values[(values < 0) | (values >= stop)]
    if outside.size:
        raise refuse(f"{what} contain {outside.flat[0]}", f"give integers from 0 to {stop - 1}")


def check_shape(values: jax.Array, dims: tuple[int | str, ...], what: str) -> None:
    """Refuses an array whose shape is not `dims`; a name in it stands for any extent."""
    same_rank = values.ndim == len(dims)
    if same_rank and all(
        isinstance(want, str) or want == have for want, have in zip(dims, values.shape, strict=True)
    ):
        return
    wanted = ", ".join(map(str, dims))
    raise refuse(f"{what} have shape {list(values.shape)}", f"give them the shape [{wanted}]")
