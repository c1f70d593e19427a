"""Conversion of PyTorch dimensions to axes, and selection along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.doors.graphs import Operand


def axes_to_reduce(x: jax.Array, dim: int | Sequence[int] | None) -> tuple[int, ...]:
    """Returns the axes that an operator reduces: all axes for None or an empty list.

    PyTorch accepts the dimensions 0 and -1 for a tensor without dimensions, which has no axes here.
    """
    if x.ndim == 0:
        return ()
    dims = (dim,) if isinstance(dim, int) else tuple(dim or ())
    return tuple(d % x.ndim for d in dims) or tuple(range(x.ndim))


def expand_per_dimension(values: Sequence[int], count: int) -> tuple[int, ...]:
    """Returns one number for each dimension, where a single one may stand for all."""
    return tuple(values) * count if len(values) == 1 else tuple(values)


def apply_along_axis(
    function: Callable[..., Operand], x: jax.Array, dim: int, keepdim: bool = True
) -> Operand:
    """Computes `function(x, axis)`, also for a tensor without dimensions.

    Args:
      function: returns an array or a tuple of arrays that keep the axis.
      x: the first argument of the function.
      dim: the dimension, as PyTorch counts it.
      keepdim: whether the results returned here keep the axis.
    """
    if x.ndim == 0:
        results = function(x[None], 0)
        return jax.tree.map(lambda result: result[0], results)
    axis = dim % x.ndim
    results = function(x, axis)
    return results if keepdim else jax.tree.map(lambda result: result.squeeze(axis), results)


def select_along_axis(
    x: jax.Array, dim: int, keepdim: bool, choose: Callable[[jax.Array, int], jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Returns the elements chosen along an axis, and their indices.

    The derivative is that of the chosen element.

    Args:
      x: the array to choose from.
      dim: the dimension along which elements are chosen.
      keepdim: whether the results keep the dimension.
      choose: returns indices along an axis of an array, with the axis kept.
    """

    def take_chosen(x: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
        indices = choose(lax.stop_gradient(x), axis)
        return jnp.take_along_axis(x, indices, axis), indices

    return apply_along_axis(take_chosen, x, dim, keepdim)
