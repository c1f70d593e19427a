"""PopART's grouped gather, and grouped scatter with a reduction."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.arrays import normalize_axis
from ipujax.doors.onnx.operators.indexing import gather, index_along_axis, scatter_by_index
from ipujax.doors.onnx.operators.reductions import neutral_extremum
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array

_ONNX_REDUCTIONS = {"sum": "add", "max": "max", "min": "min", "mul": "mul", "none": "none"}
"""ONNX's names of PopART's reductions."""


@operator("ai.graphcore.GroupedGather")
def grouped_gather(x: Array, indices: Array, axis: int = 0, group_size: int = 1) -> Array:
    """Gathers within groups that lie along the first axis of data and indices."""
    axis = normalize_axis(axis, x.ndim)
    if group_size == 1:
        return gather(x, indices, axis)
    if axis == 0:
        raise check.value_error("axis = 0 is the axis of the groups", "gather along another one")
    gather_in_group = functools.partial(gather, axis=axis - 1)
    return jax.vmap(gather_in_group)(jnp.asarray(x), jnp.asarray(indices))


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
    """Reduces slices with equal indices: [..., n, ...] to [..., axis_size, ...].

    Several groups lie along the first axis of all arrays, each with its own indices.

    Args:
      x: the values to combine.
      indices: [n], or with axes of size one around it; or one index for each element.
      initial: the initial values of the result; None for zeros, or for ones in products.
      axis_size: the size of the result along the axis.
      axis: the axis of `x` along which values are combined.
      reduction: sum, max, min, mul, or none, which keeps an undefined one of several values.
      group_size: the number of groups; 1 if no axis is for them.
      enable_index_broadcast: whether an index applies to a full slice; else fewer indices than
        elements apply to the first elements along each axis.
    """
    check.require_one_of(reduction, tuple(_ONNX_REDUCTIONS), "reduction")
    for name, size in (("axis_size", axis_size), ("group_size", group_size)):
        if size < 1:
            raise check.value_error(f"{name} = {size} is not valid: must be > 0", "give a size")
    axis = normalize_axis(axis, x.ndim)
    initial_array = None if initial is None else jnp.asarray(initial)
    arrays = jnp.asarray(x), jnp.asarray(indices), initial_array
    is_grouped = group_size > 1
    scatter_in_group = functools.partial(
        _scatter_in_group,
        axis=axis - is_grouped,
        size=axis_size,
        reduction=reduction,
        broadcasts=bool(enable_index_broadcast),
    )
    return jax.vmap(scatter_in_group)(*arrays) if is_grouped else scatter_in_group(*arrays)


def _scatter_in_group(
    x: Operand,
    indices: Operand,
    initial: Operand,
    axis: int,
    size: int,
    reduction: str,
    broadcasts: bool,
) -> Array:
    indices = _expand_indices(indices, x.shape, axis)
    if broadcasts:
        indices = _check_full_indices(indices, x.shape, axis)
    else:
        x = x[tuple(map(slice, indices.shape))]
    if initial is not None:
        return _scatter_with_reduction(initial, x, indices, axis, reduction)
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    if reduction not in ("max", "min"):
        initial_values = jnp.full(shape, 1 if reduction == "mul" else 0, x.dtype)
        return _scatter_with_reduction(initial_values, x, indices, axis, reduction)
    initial_values = jnp.full(shape, neutral_extremum(x.dtype, least=reduction == "max"), x.dtype)
    target_index = _target_index(initial_values, indices, x.shape, axis)
    is_written = jnp.zeros(shape, bool).at[target_index].set(True)
    return jnp.where(
        is_written, _scatter_with_reduction(initial_values, x, indices, axis, reduction), 0
    )


def _expand_indices(indices: Array, shape: Sequence[int], axis: int) -> Array:
    """Returns indices with as many axes as the data: missing axes get size one."""
    if indices.ndim > len(shape):
        raise check.value_error(
            f"Invalid rank for indices input. Indices rank {indices.ndim} must be <= data input "
            f"rank {len(shape)}",
            "give indices with as many axes as the data at most",
        )
    leading_ones = (1,) * axis if indices.ndim == 1 else ()
    full = (*leading_ones, *indices.shape)
    full += (1,) * (len(shape) - len(full))
    if any(i > n for i, n in zip(full, shape, strict=True)):
        raise check.value_error(
            f"Failed to expand 'indices' shape {indices.shape} to match 'src' shape {tuple(shape)} "
            f"using reduction axis = {axis}",
            "give an index for each slice, or for each element",
        )
    return indices.reshape(full)


def _check_full_indices(indices: Array, shape: Sequence[int], axis: int) -> Array:
    """Returns indices after a check that they address full slices or single elements."""
    if indices.shape != tuple(shape) and indices.shape != _shape_along_axis(shape, axis):
        raise check.value_error(
            f"Partial broadcasting of indices is not currently supported: {indices.shape} to "
            f"{tuple(shape)} along axis {axis}",
            "give an index for each slice, or for each element",
        )
    return indices


def _shape_along_axis(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """Returns a shape with size one along all axes but one."""
    return tuple(size if a == axis else 1 for a, size in enumerate(shape))


def _target_index(x: Array, indices: Array, shape: Sequence[int], axis: int) -> tuple[Operand, ...]:
    """Returns an index of the target elements, with full slices where possible."""
    if indices.shape == tuple(shape):
        return index_along_axis(x, indices, axis)
    return (*map(slice, shape[:axis]), indices.ravel(), *map(slice, shape[axis + 1 :]))


@functools.partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def _scatter_with_reduction(
    initial: Array, x: Array, indices: Array, axis: int, reduction: str
) -> Array:
    """Combines elements with the initial values at their indices.

    The derivatives are PopART's: each of several equal extrema has the derivative of the result,
    and so has each element at one index where nothing combines them.
    """
    target_index = _target_index(initial, indices, x.shape, axis)
    return scatter_by_index(initial, target_index, x, _ONNX_REDUCTIONS[reduction])


@_scatter_with_reduction.defjvp
def _differentiate_scatter(
    axis: int, reduction: str, primals: tuple[Array, ...], tangents: tuple[Array, ...]
) -> tuple[Array, Array]:
    initial, x, indices = primals
    result = _scatter_with_reduction(initial, x, indices, axis, reduction)
    target_index = _target_index(initial, indices, x.shape, axis)
    match reduction:
        case "mul":
            initial_factor, element_factor = _products_of_other_factors(initial, x, target_index)
        case "none":
            initial_factor, element_factor = jnp.ones_like(initial).at[target_index].set(0), 1
        case "sum":
            initial_factor, element_factor = 1, 1
        case _:
            initial_factor, element_factor = initial == result, x == result[target_index]
    initial_tangent, element_tangent, _ = tangents
    return result, (initial_factor * initial_tangent).at[target_index].add(
        element_factor * element_tangent
    )


def _products_of_other_factors(
    initial: Array, x: Array, target_index: tuple[Operand, ...]
) -> tuple[Array, Array]:
    """Returns for each factor the product of all other factors at the same index."""
    is_zero = (initial == 0).astype(jnp.int32), (x == 0).astype(jnp.int32)
    nonzero = jnp.where(initial == 0, 1, initial), jnp.where(x == 0, 1, x)
    product = nonzero[0].at[target_index].multiply(nonzero[1])
    zeros = is_zero[0].at[target_index].add(is_zero[1])
    initial_product = jnp.where(zeros == is_zero[0], product / nonzero[0], 0)
    return initial_product, jnp.where(
        zeros[target_index] == is_zero[1], product[target_index] / nonzero[1], 0
    )
