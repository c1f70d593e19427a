"""Connections of fields: with tensors, with rows of tensors, or with plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ipujax.poplar.exceptions import check, graph_connection_error, index_error, type_error
from ipujax.poplar.graph_parts import FieldRef, Vertex
from ipujax.poplar.tensors import Tensor, concat
from ipujax.poplar.user_lines import user_line

if TYPE_CHECKING:
    from ipujax.poplar.graph import Graph


def connect_field(graph: Graph, field: FieldRef, tensor: Any) -> None:
    """Connects a field, or one field of a vector of fields, or sets a plain field's value."""
    vertex, name = field.vertex, field.field
    declared = vertex.codelet.fields.get(name)
    if declared is None or declared.is_plain:
        if isinstance(tensor, Tensor):
            raise graph_connection_error(
                f"field '{name}' of {vertex} is plain: {tensor} cannot be connected",
                where=user_line(),
                fix="give its value with setInitialValue",
            )
        vertex.set_plain(name, tensor)
        return
    if _is_number(tensor) and declared.rank == 0 and not declared.is_written:
        tensor = graph.addConstant(declared.type, [], tensor, f"{vertex.codelet.name}/{name}")
        vertex.constants.append(tensor)
        vertex.set_tile(vertex.tile)
    if field.index is not None:
        rows = vertex.row_tensors[name]
        rows[field.index] = graph.require_tensor(tensor)
        if any(row is None for row in rows):
            return
        tensor = rows
    rows = _rows_of_connection(graph, vertex, name, tensor)
    tensor = concat([row.flatten() for row in rows]) if declared.rank == 2 else rows[0]
    if tensor.type != declared.type:
        raise type_error(
            f"field '{name}' of {vertex} is {declared.type}, and {tensor} is not",
            where=user_line(),
            fix=f"connect a tensor of {declared.type}",
        )
    if declared.rank == 1 and tensor.elements.ndim != 1:
        raise graph_connection_error(
            f"field '{name}' of {vertex} is a vector, and {tensor} is not",
            where=user_line(),
            fix="connect tensor.flatten()",
        )
    vertex.rows[name] = tuple(row.numElements() for row in rows)
    vertex.connections[name] = tensor


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, np.number, np.bool_))


def _rows_of_connection(graph: Graph, vertex: Vertex, name: str, tensor: Any) -> list[Tensor]:
    """Returns the tensors to connect: one, or one for each row of a vector of fields."""
    declared = vertex.codelet.fields[name]
    rows = [graph.require_tensor(row) for row in ([tensor] if declared.rank < 2 else tensor)]
    if not rows:
        raise graph_connection_error(
            f"field '{name}' of {vertex} is connected with no tensors", where=user_line()
        )
    if declared.rank == 2 and isinstance(tensor, Tensor):
        expected_rank = 1 if declared.has_scalar_rows else 2
        if tensor.rank() != expected_rank:
            raise graph_connection_error(
                f"field '{name}' of {vertex} is {declared}, and {tensor} is connected",
                where=user_line(),
                fix=f"give a tensor of {expected_rank} dimensions, or a list of tensors",
            )
    has_scalars = declared.rank == 0 or declared.has_scalar_rows
    for row in rows if has_scalars else ():
        if row.numElements() != 1:
            raise type_error(
                f"field '{name}' of {vertex} is a scalar, and {row} has {row.numElements()} "
                "elements",
                where=user_line(),
                fix="connect a tensor of one element",
            )
    return rows


def set_field_size(field: FieldRef, size: int) -> None:
    """Sets the number of elements of a plain vector, or of fields of a vector of fields."""
    vertex, name = field.vertex, field.field
    declared = vertex.codelet.fields.get(name)
    size = check.require_integer(size, "size", at_least=1)
    if declared is not None and declared.is_plain:
        vertex.sizes[name] = size
        if name in vertex.values:
            vertex.set_plain(name, vertex.values[name])
    elif declared is not None and declared.rank == 2:
        vertex.row_tensors[name] = [None] * size
    else:
        raise index_error(
            f"field '{name}' of {vertex} takes no size",
            where=user_line(),
            fix="set that of a plain Vector, or of a Vector of fields",
        )


def set_field_value(field: FieldRef, value: Any) -> None:
    """Sets the initial value of a plain field."""
    vertex, name = field.vertex, field.field
    declared = vertex.codelet.fields.get(name)
    if declared is not None and not declared.is_plain:
        raise graph_connection_error(
            f"field '{name}' of {vertex} is no plain field",
            where=user_line(),
            fix="connect it with a tensor, whose initial value you set",
        )
    vertex.set_plain(name, value)
