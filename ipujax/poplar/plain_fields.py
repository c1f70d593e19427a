"""The plain fields of vertices in C++, as variables that they read and write."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ipujax.poplar import element_types
from ipujax.poplar import program as programs
from ipujax.poplar.codelets import Codelet
from ipujax.poplar.cpp_codelets import PLAIN_FIELDS
from ipujax.poplar.graph import Graph
from ipujax.poplar.graph_parts import ComputeSet, Vertex


def connect_plain_fields(graph: Graph, all_programs: Iterable[programs.Program]) -> None:
    """Gives the vertices that programs execute a variable with their plain fields, and its values.

    All vertices of a type in a compute set share one variable, which lies on their tiles.
    """
    parts = [part for program in all_programs for part in program.walk()]
    sets = {part.compute_set: None for part in parts if isinstance(part, programs.Execute)}
    for compute_set in sets:
        vertices: dict[Codelet, list[Vertex]] = {}
        for vertex in compute_set.vertices:
            if PLAIN_FIELDS in vertex.codelet.fields:
                vertices.setdefault(vertex.codelet, []).append(vertex)
        for codelet, group in vertices.items():
            _connect(graph, compute_set, codelet, group)


def _connect(graph: Graph, compute_set: ComputeSet, codelet: Codelet, group: list[Vertex]) -> None:
    native = codelet.native
    if native is None:
        return
    new = [vertex for vertex in group if PLAIN_FIELDS not in vertex.connections]
    if new:
        name = f"{compute_set.name}/{codelet.name}/{PLAIN_FIELDS}"
        shape = [len(new), native.state_bytes]
        tensor = graph.add_vertex_state(element_types.UNSIGNED_CHAR, shape, name)
        for number, vertex in enumerate(new):
            vertex.connections[PLAIN_FIELDS] = tensor[number]
            vertex.rows[PLAIN_FIELDS] = (native.state_bytes,)
    elements = np.stack([vertex.connections[PLAIN_FIELDS].elements for vertex in group])
    graph.tile_of[elements] = np.array([vertex.tile for vertex in group])[:, None]
    values = np.stack([native.state_of(vertex.values) for vertex in group])
    graph.initial_values.append((elements.reshape(-1), values.reshape(-1)))
