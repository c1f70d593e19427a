"""Groups of a compute set's vertices that run under one `vmap`: equal in type, shape, values."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ipujax.poplar.codelets import Codelet
from ipujax.poplar.element_access import State, read_elements, write_elements
from ipujax.poplar.exceptions import graph_program_compilation_error, type_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.graph_parts import ComputeSet, Vertex


@dc.dataclass(frozen=True, slots=True, eq=False)
class VertexGroup:
    """Vertices that run under one `vmap`.

    Attributes:
      codelet: their type.
      vertices: in the order of `addVertex`.
      elements: for each connected field, element numbers [vertices, *the field's shape].
      plain: the values of plain fields, vectors aside, that all share.
      rows: for each connected field, the sizes of its rows.
      number: its index among the groups of an engine.
    """

    codelet: Codelet
    vertices: tuple[Vertex, ...]
    elements: Mapping[str, np.ndarray]
    plain: Mapping[str, Any]
    rows: Mapping[str, tuple[int, ...]]
    number: int

    def parameters(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns values of fields, by the names of the function's parameters."""
        return {self.codelet.parameters[field]: value for field, value in values.items()}

    def shape_of(self, field: str) -> jax.ShapeDtypeStruct:
        """Returns the shape and dtype of a field of one vertex, flat for a vector of fields."""
        dtype = self.codelet.fields[field].type.dtype
        return jax.ShapeDtypeStruct(self.elements[field].shape[1:], dtype)

    def parameter_shape(self, field: str) -> jax.ShapeDtypeStruct | tuple[Any, ...]:
        """Returns a field's shape as functions get it: a tuple for a vector of fields."""
        return (
            self.shape_of(field) if self.codelet.fields[field].rank < 2 else self.row_shapes(field)
        )

    def row_shapes(self, field: str) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Returns the shape and dtype of each of the fields of a vector of fields."""
        declared = self.codelet.fields[field]
        shapes = [() if declared.has_scalar_rows else (size,) for size in self.rows[field]]
        return tuple(jax.ShapeDtypeStruct(shape, declared.type.dtype) for shape in shapes)


def group_vertices(compute_set: ComputeSet, first: int) -> list[VertexGroup]:
    """Returns the groups of a compute set, whose vertices are connected, numbered from `first`."""
    groups: dict[Any, list[Vertex]] = {}
    for vertex in compute_set.vertices:
        sizes = tuple(vertex.rows[name] for name in vertex.codelet.fields)
        # In C++ plain fields are connected to variables, like other fields.
        plain = _values_key(vertex) if vertex.codelet.native is None else ()
        groups.setdefault((id(vertex.codelet), sizes, plain), []).append(vertex)
    return [_make_group(tuple(vertices), first + n) for n, vertices in enumerate(groups.values())]


def split_by_plain_fields(group: VertexGroup) -> list[VertexGroup]:
    """Returns the parts of a group whose vertices have equal initial plain fields."""
    parts: dict[Any, list[Vertex]] = {}
    for vertex in group.vertices:
        parts.setdefault(_values_key(vertex), []).append(vertex)
    if len(parts) == 1:
        return [group]
    return [
        dc.replace(
            group,
            vertices=tuple(vertices),
            plain={**group.codelet.plain, **_plain_values(vertices[0])},
        )
        for vertices in parts.values()
    ]


def _values_key(vertex: Vertex) -> tuple[Any, ...]:
    return tuple(sorted((name, _key(value)) for name, value in _plain_values(vertex).items()))


def _plain_values(vertex: Vertex) -> dict[str, Any]:
    """Returns the values of plain fields that have been set, except vectors."""
    return {n: value for n, value in vertex.values.items() if n not in vertex.codelet.fields}


def _key(value: Any) -> Any:
    array = np.asarray(value)
    return (array.dtype.str, array.shape, array.tobytes())


def _make_group(vertices: tuple[Vertex, ...], number: int) -> VertexGroup:
    codelet = vertices[0].codelet
    elements: dict[str, np.ndarray] = {}
    for name, field in codelet.fields.items():
        views = [vertex.connections[name].elements for vertex in vertices]
        stacked = np.stack([view.reshape(-1) for view in views])
        elements[name] = stacked if field.rank else stacked[:, 0]
    plain = {**codelet.plain, **_plain_values(vertices[0])}
    return VertexGroup(codelet, vertices, elements, plain, vertices[0].rows, number)


def run_groups(graph: Graph, groups: Sequence[VertexGroup], state: State) -> State:
    """Returns the variables that groups' vertices write; all of them read before any writes."""
    results = [(group, run_group(graph, group, state)) for group in groups]
    changed: State = {}
    for group, written in results:
        for field, values in written.items():
            changed |= write_elements(graph, {**state, **changed}, group.elements[field], values)
    return changed


def run_group(graph: Graph, group: VertexGroup, state: State) -> dict[str, jax.Array]:
    """Returns, for each written field, the values [vertices, *the field's shape]."""
    operands: dict[str, jax.Array] = {}
    axes: dict[str, int | None] = {}
    for name, field in group.codelet.fields.items():
        if not (field.is_read or field.keeps_unwritten):
            continue
        elements = group.elements[name]
        is_shared = bool((elements == elements[:1]).all())
        axes[name] = None if is_shared else 0
        operands[name] = read_elements(
            graph, state, elements[0] if is_shared else elements, field.type.dtype
        )
        if is_shared and group.codelet.native is not None:
            operands[name] = operands[name][None]
    if group.codelet.native is not None:
        return dict(group.codelet.function(group, operands))
    if all(axis is None for axis in axes.values()):
        results = run_vertex(group, operands)
        count = len(group.vertices)
        return {k: jax.numpy.broadcast_to(v, (count, *v.shape)) for k, v in results.items()}
    return jax.vmap(lambda fields: run_vertex(group, fields), in_axes=(axes,))(operands)


def run_vertex(group: VertexGroup, read: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Returns the written fields of one vertex, checked; `read` has the fields that it reads."""
    codelet = group.codelet
    arguments = {
        name: _split_rows(group, name, read[name]) if f.is_read else group.parameter_shape(name)
        for name, f in codelet.fields.items()
    }
    returned = codelet.function(**group.parameters({**arguments, **group.plain}))
    written = {name for name, field in codelet.fields.items() if field.is_written}
    if not isinstance(returned, Mapping) or {k.removesuffix("_") for k in returned} != written:
        raise graph_program_compilation_error(
            f"codelet '{codelet.name}' must return a dict of {', '.join(sorted(written))}",
            where=group.vertices[0].where,
        )
    results: dict[str, jax.Array] = {}
    for name, value in returned.items():
        field = name.removesuffix("_")
        array = _join_rows(group, field, value)
        expected = group.shape_of(field)
        if array.weak_type:
            array = array.astype(expected.dtype)
        if array.shape != expected.shape or array.dtype != expected.dtype:
            raise type_error(
                f"field '{field}' of codelet '{codelet.name}' is {expected.dtype}{expected.shape}, "
                f"and it returns {array.dtype}{array.shape}",
                where=group.vertices[0].where,
            )
        results[field] = array
    return results


def _split_rows(group: VertexGroup, field: str, array: Any) -> Any:
    """Returns a field as the function gets it: a tuple of rows for a vector of fields."""
    if group.codelet.fields[field].rank < 2:
        return array
    ends = np.cumsum((0, *group.rows[field]))
    shapes = group.row_shapes(field)
    return tuple(
        array[start:end].reshape(shape.shape)
        for start, end, shape in zip(ends[:-1], ends[1:], shapes, strict=True)
    )


def _join_rows(group: VertexGroup, field: str, value: Any) -> jax.Array:
    """Returns a field's result as one array, with its rows concatenated."""
    if group.codelet.fields[field].rank < 2:
        return jax.numpy.asarray(value)
    rows = [jax.numpy.asarray(row) for row in value]
    expected_shapes = [shape.shape for shape in group.row_shapes(field)]
    if [row.shape for row in rows] != expected_shapes:
        raise type_error(
            f"field '{field}' of codelet '{group.codelet.name}' has rows of {expected_shapes}, and "
            f"it returns {[row.shape for row in rows]}",
            where=group.vertices[0].where,
        )
    return jax.numpy.concatenate([row.reshape(-1) for row in rows])
