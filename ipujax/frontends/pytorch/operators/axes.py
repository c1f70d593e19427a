"""Dimensions as PyTorch's operators name them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def axes_of(x: jax.Array, dim: int | Sequence[int] | None) -> tuple[int, ...]:
    """The axes that an operator reduces: all of them for None and an empty list.

    A tensor of no dimensions has dimension 0 and -1 for PyTorch, which is none here.
    """
    if x.ndim == 0:
        return ()
    dims = (dim,) if isinstance(dim, int) else tuple(dim or ())
    return tuple(d % x.ndim for d in dims) or tuple(range(x.ndim))


def each_of(values: Sequence[int], count: int) -> tuple[int, ...]:
    """A number for each of so many dimensions, where one may stand for all."""
    return tuple(values) * count if len(values) == 1 else tuple(values)


def along(function: Callable[..., Any], x: jax.Array, dim: int, keepdim: bool = True) -> Any:
    """`function(x, axis)`, whose results keep the axis, also of a tensor of no dimensions.

    Args:
      function: gives an array or a tuple of arrays.
      x: its first argument.
      dim: the axis, as PyTorch counts.
      keepdim: whether the results keep it here, too.
    """
    if x.ndim == 0:
        results = function(x[None], 0)
        return jax.tree.map(lambda result: result[0], results)
    axis = dim % x.ndim
    results = function(x, axis)
    return results if keepdim else jax.tree.map(lambda result: result.squeeze(axis), results)


def picked(
    x: jax.Array, dim: int, keepdim: bool, choose: Callable[[jax.Array, int], jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """What a choice along an axis picks, and its indices.

    The derivative is that of the element picked.

    Args:
      x: from what.
      dim: along which dimension.
      keepdim: whether the results keep it.
      choose: gives the indices, with the axis kept, of an array along an axis.
    """

    def pick(x: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
        indices = choose(lax.stop_gradient(x), axis)
        return jnp.take_along_axis(x, indices, axis), indices

    return along(pick, x, dim, keepdim)
