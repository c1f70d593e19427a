"""Checks of an engine's programs before they run: tiles, fields, overlaps, endless calls."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ipujax.poplar import program as programs
from ipujax.poplar.exceptions import (
    graph_connection_error,
    graph_program_compilation_error,
    graph_recursion_error,
    index_error,
    invalid_tile_mapping,
)
from ipujax.poplar.graph import Graph
from ipujax.poplar.graph_parts import NO_TILE, ComputeSet
from ipujax.poplar.plain_fields import connect_plain_fields
from ipujax.poplar.tensors import Tensor


def check_programs(graph: Graph, all_programs: Iterable[programs.Program]) -> None:
    """Checks an engine's programs, and connects the plain fields of their vertices.

    Raises:
      graph_recursion_error: a program that calls itself.
      invalid_tile_mapping: elements that are used, or vertices, without a tile.
      graph_connection_error: a field that is not connected, or another graph.
      graph_program_compilation_error: vertices of a compute set that touch the same elements.
    """
    all_programs = [*all_programs]
    for whole_program in all_programs:
        _check_calls(whole_program, [])
    connect_plain_fields(graph, all_programs)
    checked: set[ComputeSet] = set()
    for whole_program in all_programs:
        for program in whole_program.walk():
            for tensor in _tensors_of(program):
                _check_tensor(graph, tensor, program.where)
            for tensor in _outputs_of(program):
                _check_destination(graph, tensor, program.where)
            if isinstance(program, programs.Execute) and program.compute_set not in checked:
                checked.add(program.compute_set)
                _check_compute_set(graph, program.compute_set, program.where)


def _check_calls(program: programs.Program, callers: list[int]) -> None:
    if id(program) in callers:
        raise graph_recursion_error(
            "a program runs itself", where=program.where, fix="use Repeat, or RepeatWhileTrue"
        )
    for part in program.parts():
        _check_calls(part, [*callers, id(program)])


def _tensors_of(program: programs.Program) -> list[Tensor]:
    if isinstance(program, programs.Copy):
        sides = (program.src, program.dst, program.offset)
        return [side for side in sides if isinstance(side, Tensor)]
    if isinstance(program, programs.CycleMark):
        return [program.tensor]
    return [*program.read_tensors(), *_outputs_of(program)]


def _outputs_of(program: programs.Program) -> list[Tensor]:
    """Returns the tensors that a copy or an operation writes; none for other programs."""
    if isinstance(program, programs.Operation):
        return [*program.outputs]
    if isinstance(program, programs.Copy) and isinstance(program.dst, Tensor):
        return [program.dst]
    return []


def _check_tensor(graph: Graph, tensor: Tensor, source_line: str) -> None:
    if tensor.graph is not graph:
        raise graph_connection_error(
            f"{tensor} is of another graph than the engine", where=source_line
        )
    tiles = graph.tile_of[tensor.elements]
    if (tiles == NO_TILE).any():
        element = int(tensor.elements[tiles == NO_TILE][0])
        raise invalid_tile_mapping(
            f"{graph.name_element(element)} is used and is on no tile",
            where=source_line,
            fix="call graph.setTileMapping, or poputil.mapTensorLinearly",
        )


def _check_destination(graph: Graph, tensor: Tensor, source_line: str) -> None:
    flat = tensor.elements.reshape(-1)
    if np.unique(flat).size != flat.size:
        raise index_error(f"elements of {tensor} are written more than once", where=source_line)
    _refuse_constants(graph, flat, source_line)


def _refuse_constants(graph: Graph, elements: np.ndarray, source_line: str) -> None:
    for variable in graph.variables:
        if variable.values is None:
            continue
        inside = (elements >= variable.start) & (elements < variable.start + variable.size)
        if inside.any():
            raise graph_connection_error(
                f"constant '{variable.name}' is written", where=source_line
            )


def _check_compute_set(graph: Graph, compute_set: ComputeSet, source_line: str) -> None:
    if compute_set.graph is not graph:
        raise graph_connection_error(
            f"compute set '{compute_set.name}' is of another graph", where=source_line
        )
    for vertex in compute_set.vertices:
        if vertex.tile == NO_TILE:
            raise invalid_tile_mapping(
                f"{vertex} is on no tile",
                where=vertex.where,
                fix="call graph.setTileMapping(vertex, tile)",
            )
        for field in vertex.codelet.fields:
            if field not in vertex.connections:
                raise graph_connection_error(
                    f"field '{field}' of {vertex} is not connected", where=vertex.where
                )
        for field, default in vertex.codelet.plain.items():
            if field not in vertex.values and default is vertex.codelet.NO_DEFAULT:
                raise graph_connection_error(
                    f"field '{field}' of {vertex} has no value",
                    where=vertex.where,
                    fix=f'call graph.setInitialValue(vertex["{field}"], value)',
                )
    read, readers = _edges(compute_set, are_written=False)
    written, writers = _edges(compute_set, are_written=True)
    for elements, owners in ((read, readers), (written, writers)):
        unmapped = np.flatnonzero(graph.tile_of[elements] == NO_TILE)
        if unmapped.size:
            raise invalid_tile_mapping(
                f"{graph.name_element(int(elements[unmapped[0]]))} is used and is on no tile",
                where=compute_set.vertices[owners[unmapped[0]]].where,
                fix="call graph.setTileMapping, or poputil.mapTensorLinearly",
            )
    _refuse_constants(graph, written, source_line)
    _check_overlaps(graph, compute_set, (read, readers), (written, writers))


def _edges(compute_set: ComputeSet, *, are_written: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns the elements that a compute set's vertices write, or read, and each one's vertex."""
    elements: list[np.ndarray] = [np.zeros(0, np.int64)]
    numbers: list[int] = [0]
    for vertex in compute_set.vertices:
        for name, field in vertex.codelet.fields.items():
            if field.is_written if are_written else field.is_read:
                elements.append(vertex.connections[name].elements.reshape(-1))
                numbers.append(vertex.number)
    sizes = [part.size for part in elements]
    return np.concatenate(elements), np.repeat(np.array(numbers), sizes)


def _check_overlaps(
    graph: Graph,
    compute_set: ComputeSet,
    read: tuple[np.ndarray, np.ndarray],
    written: tuple[np.ndarray, np.ndarray],
) -> None:
    owner = np.full(graph.size, NO_TILE, np.int64)
    owner[written[0]] = written[1]
    _refuse_aliased_outputs(graph, compute_set, *written)
    for (elements, users), verb in ((written, "writes"), (read, "reads")):
        clash = (owner[elements] != users) & (owner[elements] != NO_TILE)
        if clash.any():
            first_clash = int(np.flatnonzero(clash)[0])
            vertex = compute_set.vertices[users[first_clash]]
            other_vertex = compute_set.vertices[owner[elements[first_clash]]]
            element = graph.name_element(int(elements[first_clash]))
            raise graph_program_compilation_error(
                f"{vertex} on tile {vertex.tile} {verb} {element}, "
                f"which {other_vertex} on tile {other_vertex.tile} writes",
                where=vertex.where,
                fix="put one of them into a compute set of its own",
            )


def _refuse_aliased_outputs(
    graph: Graph, compute_set: ComputeSet, elements: np.ndarray, writers: np.ndarray
) -> None:
    """Raises an error for an element that one vertex writes twice through its fields."""
    last_place = np.zeros(graph.size, np.int64)
    last_place[elements] = np.arange(elements.size)
    last = last_place[elements]
    aliased = np.flatnonzero((last != np.arange(elements.size)) & (writers[last] == writers))
    if aliased.size:
        vertex = compute_set.vertices[writers[aliased[0]]]
        element = graph.name_element(int(elements[aliased[0]]))
        raise graph_program_compilation_error(
            f"{vertex} on tile {vertex.tile} writes {element} in two places of its fields",
            where=vertex.where,
            fix="connect what it writes with a tensor without repeated elements",
        )
