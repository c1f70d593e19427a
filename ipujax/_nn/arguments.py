"""Checks of integers and shapes that the operators of `ipu.nn_ops` share, while tracing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax._collectives import refuse_type
from ipujax._operands import refuse


def number(value: Any, what: str) -> int:
    """`value` if it is an integer known while tracing; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise refuse_type(
            f"{what} is {value!r}", "give a Python int, known when the function is traced"
        )
    return int(value)


def at_least_one(value: Any, what: str) -> int:
    """`value` if it is a positive integer known while tracing."""
    checked = number(value, what)
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
    array = jnp.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise refuse_type(f"{what} are {array.dtype}", "give integers, such as jnp.int32")
    check_shape(array, dims, what)
    return array.astype(jnp.int32)


def check_shape(array: jax.Array, dims: tuple[int | str, ...], what: str) -> None:
    """Refuses an array whose shape is not `dims`; a name in it stands for any extent."""
    same_rank = array.ndim == len(dims)
    if same_rank and all(
        isinstance(want, str) or want == have for want, have in zip(dims, array.shape, strict=True)
    ):
        return
    wanted = ", ".join(map(str, dims))
    raise refuse(f"{what} have shape {list(array.shape)}", f"give them the shape [{wanted}]")
