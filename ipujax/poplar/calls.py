"""`poplar.call`: a graph's program within a JAX function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.poplar import poputil
from ipujax.poplar import program as programs
from ipujax.poplar.devices import IPUModel
from ipujax.poplar.element_access import read_elements
from ipujax.poplar.element_types import type_of_dtype
from ipujax.poplar.engine_checks import check_programs
from ipujax.poplar.exceptions import check, graph_connection_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.graph_parts import NO_TILE, DataStream
from ipujax.poplar.host_values import initial_state
from ipujax.poplar.lower_program import ProgramLowering
from ipujax.poplar.lower_steps import is_planned
from ipujax.poplar.stream_connections import StreamConnections
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_lines import user_line
from ipujax.poplar.written_elements import WrittenElements


@check.guard
def call(build: Callable[..., Any], *arrays: Any) -> Any:
    """Runs a program of a graph as a part of a function of JAX.

    Within `ipu.compile` its compute sets and copies are a part of the program, on their tiles;
    elsewhere it is plain JAX, which `jit`, `grad` and `vmap` transform. The graph is made for one
    second-generation IPU, each time that the function is traced.

    Args:
      build: `build(graph, sequence, *tensors)` adds programs to the sequence and returns tensors:
        one, or a pytree of them. Arguments that it does not map are mapped linearly.
      *arrays: the arrays of the tensors, of Poplar's element types.

    Returns:
      The arrays of the tensors that `build` returns, in the same pytree.

    Raises:
      poplar_error: a program that an `Engine` refuses, or one with streams, which need an engine.
    """
    check.require_function(build, "build")
    graph, sequence = Graph(IPUModel().createDevice().getTarget()), programs.Sequence()
    values = [jnp.asarray(array) for array in arrays]
    tensors = [
        graph.addVariable(type_of_dtype(array.dtype), array.shape, f"argument{i}")
        for i, array in enumerate(values)
    ]
    results = build(graph, sequence, *tensors)
    unplaced = [
        number
        for number, tensor in enumerate(tensors)
        if (graph.tile_of[tensor.elements] == NO_TILE).all()
    ]
    for number in unplaced:
        poputil.mapTensorLinearly(graph, tensors[number])
    leaves, tree = jax.tree.flatten(results, is_leaf=lambda leaf: isinstance(leaf, Tensor))
    for leaf in leaves:
        check.require_instance(leaf, Tensor, "what build returns", "tensors")
    _check_graph(graph, sequence, tensors, leaves)
    connections = StreamConnections(graph)
    has_planned_steps = any(is_planned(graph, step) for step in sequence.walk())
    lowering = ProgramLowering(
        graph, connections, [sequence], None if has_planned_steps else frozenset(unplaced)
    )
    argument_arrays = {number: array.reshape(-1) for number, array in enumerate(values)}
    final_state = lowering.run(sequence, initial_state(graph, argument_arrays))
    return jax.tree.unflatten(
        tree, [read_elements(graph, final_state, t.elements, t.type.dtype) for t in leaves]
    )


def _check_graph(
    graph: Graph, sequence: programs.Sequence, arguments: list[Tensor], results: list[Tensor]
) -> None:
    """Raises the errors of an engine, and one for streams."""
    check_programs(graph, [sequence])
    for part in sequence.walk():
        if isinstance(part, programs.Copy):
            for side in (part.src, part.dst):
                if isinstance(side, DataStream):
                    raise graph_connection_error(
                        f"a copy of stream '{side.name}' in poplar.call",
                        where=part.where,
                        fix="give an array to call, or return a tensor",
                    )
    written = WrittenElements(graph)
    for tensor in arguments:
        written.is_written[tensor.elements] = True
    written.run(sequence)
    for tensor in results:
        written.require(tensor.elements, "poplar.call", user_line())
