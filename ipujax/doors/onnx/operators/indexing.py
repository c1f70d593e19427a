"""Gather and scatter operators."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.arrays import (
    are_constant,
    count_indices_from_front,
    index_at_axis,
    normalize_axis,
)
from ipujax.doors.onnx.operators.table import operator


@operator("Gather")
def gather(x: Operand, indices: Operand, axis: int = 0) -> Operand:
    axis = normalize_axis(axis, x.ndim)
    if are_constant(x, indices):
        return np.take(x, indices, axis)
    index = index_at_axis(axis, count_indices_from_front(indices, x.shape[axis]))
    return jnp.asarray(x).at[index].get(mode="clip")


@operator("GatherElements", 11)
def gather_elements(x: jax.Array, indices: Operand, axis: int = 0) -> jax.Array:
    axis = normalize_axis(axis, x.ndim)
    return jnp.asarray(x).at[index_along_axis(x, indices, axis)].get(mode="clip")


@operator("GatherND", 11)
def gather_nd(x: jax.Array, indices: jax.Array, batch_dims: int = 0) -> jax.Array:
    """Gathers elements or slices; the last axis of the indices indexes the first axes."""

    def take_sample(x: jax.Array, indices: jax.Array) -> jax.Array:
        return x.at[_split_index_vectors(x, indices)].get(mode="clip")

    for _ in range(batch_dims):
        take_sample = jax.vmap(take_sample)
    return take_sample(jnp.asarray(x), jnp.asarray(indices))


@operator("Scatter", 9)
def scatter(x: jax.Array, indices: Operand, updates: jax.Array, axis: int = 0) -> jax.Array:
    return scatter_elements(x, indices, updates, axis)


@operator("ScatterElements", 11)
def scatter_elements(
    x: jax.Array, indices: Operand, updates: jax.Array, axis: int = 0, reduction: str = "none"
) -> jax.Array:
    """Scatters updates; more updates than indices are cut, as PopART takes them."""
    target_index = index_along_axis(x, indices, normalize_axis(axis, x.ndim))
    return scatter_by_index(x, target_index, updates[tuple(map(slice, indices.shape))], reduction)


@operator("ScatterND", 11)
def scatter_nd(
    x: jax.Array, indices: Operand, updates: jax.Array, reduction: str = "none"
) -> jax.Array:
    return scatter_by_index(x, _split_index_vectors(x, indices), updates, reduction)


@operator("TensorScatter", 24)
def tensor_scatter(
    past: jax.Array,
    update: jax.Array,
    write_indices: Operand = None,
    axis: int = -2,
    mode: str = "linear",
) -> jax.Array:
    """Writes each sample's update into its sequence from its own start on."""
    if mode not in ("linear", "circular"):
        raise check.value_error(f"mode is {mode!r}", "give 'linear' or 'circular'")
    axis = normalize_axis(axis, past.ndim)
    start = jnp.zeros(past.shape[0], jnp.int32) if write_indices is None else write_indices
    steps = jax.lax.broadcasted_iota(jnp.int32, update.shape, axis)
    positions = steps + jnp.reshape(start, [-1] + [1] * (past.ndim - 1))
    return scatter_by_index(
        past, index_along_axis(past, positions % past.shape[axis], axis), update, "none"
    )


def scatter_by_index(x: Operand, index: Operand, updates: Operand, reduction: str) -> jax.Array:
    """Returns an array with updates at an index; of several at one element any may stay."""
    indexed = jnp.asarray(x).at[index]
    values = jnp.asarray(updates, x.dtype)
    functions: dict[str, Callable[..., jax.Array]] = {
        "add": indexed.add,
        "max": indexed.max,
        "min": indexed.min,
        "mul": indexed.multiply,
        "none": indexed.set,
    }
    if reduction not in functions:
        raise check.value_error(
            f"reduction is {reduction!r}", f"give one of {', '.join(functions)}"
        )
    return functions[reduction](values)


def index_along_axis(x: Operand, indices: Operand, axis: int) -> tuple[Operand, ...]:
    """Returns an index of all axes for elements that change position along one axis."""
    open_grid = np.ogrid[tuple(slice(size) for size in indices.shape)]
    return (
        *open_grid[:axis],
        count_indices_from_front(jnp.asarray(indices), x.shape[axis]),
        *open_grid[axis + 1 :],
    )


def _split_index_vectors(x: Operand, indices: Operand) -> tuple[Operand, ...]:
    """Splits an array of index vectors into one index array for each first axis."""
    sizes = x.shape[: indices.shape[-1]]
    return tuple(
        count_indices_from_front(indices[..., axis], size) for axis, size in enumerate(sizes)
    )
