"""Reads and writes of variables' elements, by static numbers, in functions that JAX traces.

Variables are 1-d arrays. Regions that are contiguous, or contiguous in another order of their
dimensions, become slices and transposes; all others gathers and scatters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.poplar.graph import Graph

State = dict[int, jax.Array]
"""The arrays of variables by their numbers."""


def variables_of(graph: Graph, elements: np.ndarray) -> list[int]:
    """Returns the numbers of the variables that elements belong to, in order."""
    if not elements.size:
        return []
    first, last = (
        int(np.searchsorted(graph.starts, bound, side="right")) - 1
        for bound in (elements.min(), elements.max())
    )
    if first == last:
        return [first]
    owners = np.searchsorted(graph.starts, elements.reshape(-1), side="right") - 1
    return np.unique(owners).tolist()


def read_elements(
    graph: Graph,
    state: Mapping[int, jax.Array],
    elements: np.ndarray,
    dtype: np.dtype | None = None,
) -> jax.Array:
    """Returns elements as an array of the shape of their numbers.

    Args:
      graph: the graph.
      state: the variables' arrays.
      elements: their numbers.
      dtype: the type to reinterpret their bits as, if not the variables' own.
    """
    numbers = variables_of(graph, elements)
    if not numbers:
        return jnp.zeros(elements.shape, dtype)
    arrays = [_reinterpret(state[number], dtype) for number in numbers]
    if len(numbers) == 1:
        return _take(arrays[0], elements - graph.starts[numbers[0]])
    starts = np.cumsum([0, *(graph.variables[n].size for n in numbers)])[:-1]
    owners = np.searchsorted(graph.starts, elements, side="right") - 1
    shifts = np.zeros(len(graph.variables), np.int64)
    shifts[numbers] = starts - np.asarray(graph.starts)[numbers]
    return _take(jnp.concatenate(arrays), elements + shifts[owners])


def _reinterpret(array: jax.Array, dtype: np.dtype | None) -> jax.Array:
    if dtype is None or array.dtype == dtype:
        return array
    return jax.lax.bitcast_convert_type(array, dtype)


def write_elements(
    graph: Graph, state: Mapping[int, jax.Array], elements: np.ndarray, values: jax.Array
) -> State:
    """Returns the variables that are written: the state with distinct elements replaced."""
    flat, values = elements.reshape(-1), values.reshape(-1)
    numbers = variables_of(graph, flat)
    if len(numbers) == 1:
        values = _reinterpret(values, state[numbers[0]].dtype)
        return {numbers[0]: _put(state[numbers[0]], flat - graph.starts[numbers[0]], values)}
    owners = np.searchsorted(graph.starts, flat, side="right") - 1
    changed: State = {}
    for number in numbers:
        positions = np.flatnonzero(owners == number)
        indices = flat[positions] - graph.starts[number]
        variable_values = _reinterpret(_take(values, positions), state[number].dtype)
        changed[number] = _put(state[number], indices, variable_values)
    return changed


def _take(array: jax.Array, indices: np.ndarray) -> jax.Array:
    if (view := _find_view(indices)) is None:
        return array.at[indices].get(mode="promise_in_bounds")
    start, extents, order = view
    size = math.prod(extents)
    part = array if size == array.size else jax.lax.slice(array, (start,), (start + size,))
    values = part.reshape(extents).transpose(order) if len(extents) > 1 else part
    return values.reshape(indices.shape)


def _put(array: jax.Array, indices: np.ndarray, values: jax.Array) -> jax.Array:
    first = int(indices[0])
    if np.array_equal(indices, np.arange(first, first + indices.size)):
        if indices.size == array.size:
            return values
        return jax.lax.dynamic_update_slice(array, values, (first,))
    if indices.size == array.size:
        inverse = np.empty_like(indices)
        inverse[indices] = np.arange(indices.size)
        return _take(values, inverse)
    return array.at[indices].set(values, mode="promise_in_bounds", unique_indices=True)


def _find_view(indices: np.ndarray) -> tuple[int, list[int], list[int]] | None:
    """Finds the contiguous region of which indices are a view with its dimensions transposed.

    Returns:
      The region's first index, its extents in memory's order, and the transposition of these to
      the order of `indices` without dimensions of extent 1; None if there is no such region.
    """
    if not indices.size:
        return None
    squeezed = indices.squeeze()
    start, axes = int(squeezed.flat[0]), range(squeezed.ndim)
    steps = [int(np.moveaxis(squeezed, axis, 0)[1].flat[0]) - start for axis in axes]
    axes_in_memory_order = sorted(axes, key=lambda axis: -steps[axis])
    expected = 1
    for axis in reversed(axes_in_memory_order):
        if steps[axis] != expected:
            return None
        expected *= squeezed.shape[axis]
    contiguous = np.arange(start, start + squeezed.size)
    extents = [squeezed.shape[axis] for axis in axes_in_memory_order]
    order = [axes_in_memory_order.index(axis) for axis in axes]
    if not np.array_equal(contiguous.reshape(extents).transpose(order), squeezed):
        return None
    return start, extents, order
