"""The values of variables on the host: before a first run, and for reads and writes."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.poplar.element_access import State, variables_of
from ipujax.poplar.graph import Graph
from ipujax.poplar.lower_program import CLOCK
from ipujax.poplar.lower_steps import key_of_buffer


def initial_state(graph: Graph, arguments: Mapping[int, jax.Array] | None = None) -> State:
    """Returns the state before any run: constants, initial values, and 0 for all else.

    Args:
      graph: the graph.
      arguments: variables that hold something else, 1-d, by their numbers.
    """
    arrays = {
        variable.number: np.zeros(variable.size, variable.type.dtype)
        if variable.values is None
        else np.array(variable.values)
        for variable in graph.variables
    }
    for elements, values in graph.initial_values:
        write_values(graph, arrays, elements, values)
    for buffer in graph.remote_buffers.values():
        arrays[key_of_buffer(buffer)] = np.zeros(buffer.repeats * buffer.size, buffer.type.dtype)
    arrays[CLOCK] = np.zeros(2, np.uint32)
    state = {key: jnp.asarray(array) for key, array in arrays.items()}
    return {**state, **(arguments or {})}


def write_values(
    graph: Graph, arrays: Mapping[int, np.ndarray], elements: np.ndarray, values: np.ndarray
) -> None:
    """Writes elements of variables on the host.

    Args:
      graph: the graph.
      arrays: the variables, 1-d, by their numbers.
      elements: element numbers, 1-d.
      values: as many values, of the variables' type or another type of its size.
    """
    for number in variables_of(graph, elements):
        is_inside, indices = _find_inside(graph, number, elements)
        arrays[number].view(values.dtype)[indices] = values[is_inside]


def read_values(
    graph: Graph, state: Mapping[int, jax.Array], elements: np.ndarray, dtype: np.dtype
) -> np.ndarray:
    """Returns elements of variables on the host, 1-d, as a type of the variables' size."""
    values = np.empty(elements.size, dtype)
    for number in variables_of(graph, elements):
        is_inside, indices = _find_inside(graph, number, elements)
        values[is_inside] = np.asarray(state[number]).view(dtype)[indices]
    return values


def _find_inside(graph: Graph, number: int, elements: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns which of some elements belong to a variable, and their indices in it."""
    variable = graph.variables[number]
    indices = elements - variable.start
    is_inside = (indices >= 0) & (indices < variable.size)
    return is_inside, indices[is_inside]
