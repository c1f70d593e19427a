"""The plain fields of vertices in C++, as variables that they read and write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ipujax.poplar import element_types
from ipujax.poplar import program as programs
from ipujax.poplar.codelets import Codelet
from ipujax.poplar.cpp_codelets import PLAIN_FIELDS, CppVertex
from ipujax.poplar.exceptions import graph_connection_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.graph_parts import ComputeSet, Vertex


def connect_plain_fields(graph: Graph, all_programs: Iterable[programs.Program]) -> None:
    """Connects the plain fields of all vertices that programs execute with variables of the graph.

    All vertices of a type in a compute set share one variable, which lies on their tiles, for the
    bytes of fields without vectors, and one for each vector.

    Raises:
      graph_connection_error: a vector without a size.
    """
    parts = [part for program in all_programs for part in program.walk()]
    sets = {part.compute_set: None for part in parts if isinstance(part, programs.Execute)}
    for compute_set in sets:
        vertices: dict[Codelet, list[Vertex]] = {}
        for vertex in compute_set.vertices:
            if vertex.codelet.native is not None:
                vertices.setdefault(vertex.codelet, []).append(vertex)
        for codelet, group in vertices.items():
            _connect_group(graph, compute_set, codelet, group)


def _connect_group(
    graph: Graph, compute_set: ComputeSet, codelet: Codelet, group: list[Vertex]
) -> None:
    native = codelet.native
    if native is None:
        return
    name = f"{compute_set.name}/{codelet.name}"
    if PLAIN_FIELDS in codelet.fields:
        states = [native.state_of(vertex.values) for vertex in group]
        type = element_types.UNSIGNED_CHAR
        _connect_field(graph, group, PLAIN_FIELDS, states, type, f"{name}/{PLAIN_FIELDS}")
    for field, type in native.vectors.items():
        vectors = [_elements_of_vector(native, vertex, field) for vertex in group]
        _connect_field(graph, group, field, vectors, type, f"{name}/{field}")


def _elements_of_vector(native: CppVertex, vertex: Vertex, field: str) -> np.ndarray:
    size = vertex.sizes.get(field)
    if size is None and field not in vertex.values:
        raise graph_connection_error(
            f"the vector '{field}' of {vertex} has neither a size nor values",
            where=vertex.where,
            fix=f'call graph.setFieldSize(vertex["{field}"], size), or setInitialValue',
        )
    return native.elements_of(field, vertex.values.get(field, 0), size)


def _connect_field(
    graph: Graph,
    group: Sequence[Vertex],
    field: str,
    values: Sequence[np.ndarray],
    type: element_types.Type,
    name: str,
) -> None:
    """Connects a field of vertices with a new variable, and sets its initial values.

    Vertices of an earlier engine keep theirs, as long as their sizes are the same.
    """
    unconnected = [
        (vertex, array)
        for vertex, array in zip(group, values, strict=True)
        if vertex.rows.get(field) != (array.size,)
    ]
    if unconnected:
        size = sum(array.size for _, array in unconnected)
        tensor, end = graph.add_vertex_state(type, [size], name), 0
        for vertex, array in unconnected:
            vertex.connections[field] = tensor.slice(end, end := end + array.size)
            vertex.rows[field] = (array.size,)
    for vertex in group:
        graph.tile_of[vertex.connections[field].elements] = vertex.tile
    elements = np.concatenate([vertex.connections[field].elements for vertex in group])
    graph.initial_values.append((elements, np.concatenate(values)))
