"""Operators that take elements at indices, or put them there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.arrays import along, axis_of, counted, known
from ipujax.frontends.onnx.operators.table import operator


@operator("Gather")
def gather(x: Any, indices: Any, axis: int = 0) -> Any:
    axis = axis_of(axis, x.ndim)
    if known(x, indices):
        return np.take(x, indices, axis)
    where = along(axis, counted(indices, x.shape[axis]))
    return jnp.asarray(x).at[where].get(mode="clip")


@operator("GatherElements", 11)
def gather_elements(x: jax.Array, indices: Any, axis: int = 0) -> jax.Array:
    axis = axis_of(axis, x.ndim)
    return jnp.asarray(x).at[grid(x, indices, axis)].get(mode="clip")


@operator("GatherND", 11)
def gather_nd(x: jax.Array, indices: jax.Array, batch_dims: int = 0) -> jax.Array:
    """The last axis of the indices holds the first places of an element or a slice."""

    def take(x: jax.Array, indices: jax.Array) -> jax.Array:
        return x.at[_places(x, indices)].get(mode="clip")

    for _ in range(batch_dims):
        take = jax.vmap(take)
    return take(jnp.asarray(x), jnp.asarray(indices))


@operator("Scatter", 9)
def scatter(x: jax.Array, indices: Any, updates: jax.Array, axis: int = 0) -> jax.Array:
    return scatter_elements(x, indices, updates, axis)


@operator("ScatterElements", 11)
def scatter_elements(
    x: jax.Array, indices: Any, updates: jax.Array, axis: int = 0, reduction: str = "none"
) -> jax.Array:
    """Of updates that are more than the indices, as PopART takes them, the first ones count."""
    where = grid(x, indices, axis_of(axis, x.ndim))
    return put(x, where, updates[tuple(map(slice, indices.shape))], reduction)


@operator("ScatterND", 11)
def scatter_nd(
    x: jax.Array, indices: Any, updates: jax.Array, reduction: str = "none"
) -> jax.Array:
    return put(x, _places(x, indices), updates, reduction)


@operator("TensorScatter", 24)
def tensor_scatter(
    past: jax.Array,
    update: jax.Array,
    write_indices: Any = None,
    axis: int = -2,
    mode: str = "linear",
) -> jax.Array:
    """Each sample's update begins at its own place of the sequence."""
    if mode not in ("linear", "circular"):
        raise check.refuse(f"mode is {mode!r}", "give 'linear' or 'circular'")
    axis = axis_of(axis, past.ndim)
    start = jnp.zeros(past.shape[0], jnp.int32) if write_indices is None else write_indices
    steps = jax.lax.broadcasted_iota(jnp.int32, update.shape, axis)
    places = steps + jnp.reshape(start, [-1] + [1] * (past.ndim - 1))
    return put(past, grid(past, places % past.shape[axis], axis), update, "none")


def put(x: Any, where: Any, updates: Any, reduction: str) -> jax.Array:
    """An array with others in some places; of several at one, which stays is not defined."""
    at = jnp.asarray(x).at[where]
    values = jnp.asarray(updates, x.dtype)
    functions: dict[str, Callable[..., jax.Array]] = {
        "add": at.add,
        "max": at.max,
        "min": at.min,
        "mul": at.multiply,
        "none": at.set,
    }
    if reduction not in functions:
        raise check.refuse(f"reduction is {reduction!r}", f"give one of {', '.join(functions)}")
    return functions[reduction](values)


def grid(x: Any, indices: Any, axis: int) -> tuple[Any, ...]:
    """Indices of all axes for elements that differ from their own place along one of them."""
    grid = np.ogrid[tuple(slice(size) for size in indices.shape)]
    return (*grid[:axis], counted(jnp.asarray(indices), x.shape[axis]), *grid[axis + 1 :])


def _places(x: Any, indices: Any) -> tuple[Any, ...]:
    """Indices of the first axes out of an array of them."""
    sizes = x.shape[: indices.shape[-1]]
    return tuple(counted(indices[..., axis], size) for axis, size in enumerate(sizes))
