"""PopART's scatter with a reduction, and gather, of groups of arrays."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.arrays import axis_of
from ipujax.frontends.onnx.operators.indexing import gather, grid, put
from ipujax.frontends.onnx.operators.reductions import neutral
from ipujax.frontends.onnx.operators.table import operator

Array = jax.Array

_COMBINED = {"sum": "add", "max": "max", "min": "min", "mul": "mul", "none": "none"}
"""The reductions, by ONNX's names for them."""


@operator("ai.graphcore.GroupedGather")
def grouped_gather(x: Array, indices: Array, axis: int = 0, group_size: int = 1) -> Array:
    """As `Gather`; several groups lie along the first axis of both, each with its own indices."""
    axis = axis_of(axis, x.ndim)
    if group_size == 1:
        return gather(x, indices, axis)
    if axis == 0:
        raise check.refuse("axis = 0 is the axis of the groups", "gather along another one")
    one = functools.partial(gather, axis=axis - 1)
    return jax.vmap(one)(jnp.asarray(x), jnp.asarray(indices))


@operator("ai.graphcore.ScatterReduce")
def scatter_reduce(
    x: Array,
    indices: Array,
    initial: Array | None = None,
    *,
    axis_size: int,
    axis: int = -1,
    reduction: str = "sum",
    group_size: int = 1,
    enable_index_broadcast: int = 1,
) -> Array:
    """Combines what has the same index along an axis: [..., n, ...] to [..., axis_size, ...].

    Several groups lie along the first axis of all arrays, each with its own indices.

    Args:
      x: what is combined.
      indices: [n], or with axes of size one around it; or as many as there are elements.
      initial: what the result is before, which may be larger; None for zeros, or ones of products.
      axis_size: of the result.
      axis: of `x`.
      reduction: sum, max, min, mul or none, where which one of several stays is not defined.
      group_size: how many groups there are; 1 where no axis is for them.
      enable_index_broadcast: whether indices stand for whole slices; else, indices that are fewer
        than the elements mean the first ones along each axis.
    """
    check.one_of(reduction, tuple(_COMBINED), "reduction")
    for name, size in (("axis_size", axis_size), ("group_size", group_size)):
        if size < 1:
            raise check.refuse(f"{name} = {size} is not valid: must be > 0", "give a size")
    axis = axis_of(axis, x.ndim)
    before = None if initial is None else jnp.asarray(initial)
    arrays = jnp.asarray(x), jnp.asarray(indices), before
    is_grouped = group_size > 1
    one = functools.partial(
        _scattered,
        axis=axis - is_grouped,
        size=axis_size,
        reduction=reduction,
        broadcasts=bool(enable_index_broadcast),
    )
    return jax.vmap(one)(*arrays) if is_grouped else one(*arrays)


def _scattered(
    x: Any, indices: Any, initial: Any, axis: int, size: int, reduction: str, broadcasts: bool
) -> Array:
    indices = _beside(indices, x.shape, axis)
    if broadcasts:
        indices = _whole(indices, x.shape, axis)
    else:
        x = x[tuple(map(slice, indices.shape))]
    if initial is not None:
        return _combined(initial, x, indices, axis, reduction)
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    if reduction not in ("max", "min"):
        full = jnp.full(shape, 1 if reduction == "mul" else 0, x.dtype)
        return _combined(full, x, indices, axis, reduction)
    full = jnp.full(shape, neutral(x.dtype, least=reduction == "max"), x.dtype)
    where = _places(full, indices, x.shape, axis)
    is_given = jnp.zeros(shape, bool).at[where].set(True)
    return jnp.where(is_given, _combined(full, x, indices, axis, reduction), 0)


def _beside(indices: Array, shape: Sequence[int], axis: int) -> Array:
    """Indices with as many axes as the data: those that are missing have size one."""
    if indices.ndim > len(shape):
        raise check.refuse(
            f"Invalid rank for indices input. Indices rank {indices.ndim} must be <= data input "
            f"rank {len(shape)}",
            "give indices with as many axes as the data at most",
        )
    before = (1,) * axis if indices.ndim == 1 else ()
    full = (*before, *indices.shape)
    full += (1,) * (len(shape) - len(full))
    if any(i > n for i, n in zip(full, shape, strict=True)):
        raise check.refuse(
            f"Failed to expand 'indices' shape {indices.shape} to match 'src' shape {tuple(shape)} "
            f"using reduction axis = {axis}",
            "give an index for each slice, or for each element",
        )
    return indices.reshape(full)


def _whole(indices: Array, shape: Sequence[int], axis: int) -> Array:
    """Indices of whole slices, or of each element."""
    if indices.shape != tuple(shape) and indices.shape != _line(shape, axis):
        raise check.refuse(
            f"Partial broadcasting of indices is not currently supported: {indices.shape} to "
            f"{tuple(shape)} along axis {axis}",
            "give an index for each slice, or for each element",
        )
    return indices


def _line(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """A shape with size one along all other axes."""
    return tuple(size if a == axis else 1 for a, size in enumerate(shape))


def _places(x: Array, indices: Array, shape: Sequence[int], axis: int) -> tuple[Any, ...]:
    """Where elements of a shape go: slices as wholes where that is possible."""
    if indices.shape == tuple(shape):
        return grid(x, indices, axis)
    return (*map(slice, shape[:axis]), indices.ravel(), *map(slice, shape[axis + 1 :]))


@functools.partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def _combined(initial: Array, x: Array, indices: Array, axis: int, reduction: str) -> Array:
    """Elements put into what is there before.

    The derivatives are PopART's: all of several largest ones have that of the result, and all that
    are put in one place where nothing combines them.
    """
    where = _places(initial, indices, x.shape, axis)
    return put(initial, where, x, _COMBINED[reduction])


@_combined.defjvp
def _of_combined(
    axis: int, reduction: str, primals: tuple[Array, ...], tangents: tuple[Array, ...]
) -> tuple[Array, Array]:
    initial, x, indices = primals
    result = _combined(initial, x, indices, axis, reduction)
    where = _places(initial, indices, x.shape, axis)
    match reduction:
        case "mul":
            kept, shares = _of_product(initial, x, where)
        case "none":
            kept, shares = jnp.ones_like(initial).at[where].set(0), 1
        case "sum":
            kept, shares = 1, 1
        case _:
            kept, shares = initial == result, x == result[where]
    before, given, _ = tangents
    return result, (kept * before).at[where].add(shares * given)


def _of_product(initial: Array, x: Array, where: tuple[Any, ...]) -> tuple[Array, Array]:
    """The product of all others of the same place, for each factor."""
    is_zero = (initial == 0).astype(jnp.int32), (x == 0).astype(jnp.int32)
    rest = jnp.where(initial == 0, 1, initial), jnp.where(x == 0, 1, x)
    product = rest[0].at[where].multiply(rest[1])
    zeros = is_zero[0].at[where].add(is_zero[1])
    kept = jnp.where(zeros == is_zero[0], product / rest[0], 0)
    return kept, jnp.where(zeros[where] == is_zero[1], product[where] / rest[1], 0)
