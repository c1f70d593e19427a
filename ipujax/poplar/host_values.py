"""What variables hold before a program has run."""

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
    for elements, given in graph.initial_values:
        put_values(graph, arrays, elements, given)
    for buffer in graph.remote_buffers.values():
        arrays[key_of_buffer(buffer)] = np.zeros(buffer.repeats * buffer.size, buffer.type.dtype)
    arrays[CLOCK] = np.zeros(2, np.uint32)
    held = {number: jnp.asarray(array) for number, array in arrays.items()}
    return {**held, **(arguments or {})}


def put_values(
    graph: Graph, arrays: Mapping[int, np.ndarray], elements: np.ndarray, values: np.ndarray
) -> None:
    """Writes elements of variables on the host.

    Args:
      graph: the graph.
      arrays: the variables, 1-d, by their numbers.
      elements: element numbers, 1-d.
      values: as many, of the variables' type or of another one of that size.
    """
    for number in variables_of(graph, elements):
        variable = graph.variables[number]
        inside = (elements >= variable.start) & (elements < variable.start + variable.size)
        arrays[number].view(values.dtype)[elements[inside] - variable.start] = values[inside]
