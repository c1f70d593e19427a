"""The parts of graphs: variables, compute sets, vertices, streams, remote buffers, functions."""

from __future__ import annotations

import copy
import dataclasses as dc
from typing import TYPE_CHECKING, Any

import numpy as np

from ipujax.poplar.codelets import Codelet
from ipujax.poplar.element_types import Type
from ipujax.poplar.exceptions import check, index_error
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_lines import user_line

if TYPE_CHECKING:
    from ipujax.poplar.graph import Graph
    from ipujax.poplar.program import Program

NO_TILE = -1


@dc.dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """A variable or constant: consecutive element numbers of a graph.

    Attributes:
      name: the user's name, or one of ours.
      number: its index among the variables.
      start: the number of its first element.
      size: the number of its elements.
      type: the element type.
      values: the elements of a constant; None for a variable.
      category: its category in reports: "variables", "constants", or "vertex_state" for vertices'
        plain fields.
    """

    name: str
    number: int
    start: int
    size: int
    type: Type
    values: np.ndarray | None = None
    category: str = "variables"


@dc.dataclass(eq=False)
class ComputeSet:
    """Vertices that run at the same time."""

    name: str
    graph: Graph
    vertices: list[Vertex] = dc.field(default_factory=list)


@dc.dataclass(eq=False, slots=True)
class OperationComputeSet(ComputeSet):
    """A compute set of PopLibs' own vertices, which `Execute` runs as one operation."""

    operation: Program = dc.field(kw_only=True)


@dc.dataclass(eq=False, slots=True)
class Vertex:
    """A vertex, as `addVertex` makes it: `vertex["field"]` is one of its fields.

    Attributes:
      compute_set: the set that it belongs to.
      codelet: the vertex type.
      number: its index in the compute set.
      where: the user's line.
      connections: tensors by field, flat for a vector of vectors.
      rows: the sizes of the rows of each field.
      row_tensors: tensors of vectors of fields whose fields are connected one by one.
      values: plain fields that have been set.
      sizes: the sizes of plain vectors that have been set.
      tile: its tile; `NO_TILE` before it is set.
      cycles: the estimate that has been set for it, if any.
      flops: the floating-point operations that have been set for it.
      constants: constants, on the vertex's tile, of inputs that have been given as numbers.
    """

    compute_set: ComputeSet
    codelet: Codelet
    number: int
    where: str
    connections: dict[str, Tensor] = dc.field(default_factory=dict)
    rows: dict[str, tuple[int, ...]] = dc.field(default_factory=dict)
    row_tensors: dict[str, list[Tensor | None]] = dc.field(default_factory=dict)
    values: dict[str, Any] = dc.field(default_factory=dict)
    sizes: dict[str, int] = dc.field(default_factory=dict)
    tile: int = NO_TILE
    cycles: float | None = None
    flops: int = 0
    constants: list[Tensor] = dc.field(default_factory=list)

    def __getitem__(self, field: str) -> FieldRef:
        self.codelet.require_field(field)
        return FieldRef(self, field)

    def set_tile(self, tile: int) -> None:
        """Maps the vertex and its constants to a tile, by its number in the whole graph."""
        self.tile = tile
        for constant in self.constants:
            constant.graph.tile_of[constant.elements] = tile

    def set_plain(self, field: str, value: Any) -> None:
        """Sets the initial value of a plain field."""
        if self.codelet.native is not None:
            self.codelet.native.check_value(field, value, self.sizes.get(field))
        self.values[field] = copy.copy(value)  # the user's array may change

    def __str__(self) -> str:
        return f"vertex {self.number} ('{self.codelet.name}') of '{self.compute_set.name}'"


@dc.dataclass(frozen=True, slots=True, eq=False)
class FieldRef:
    """A field of a vertex.

    Attributes:
      vertex: the vertex.
      field: its name.
      index: its index in a vector of fields; None for the whole vector.
    """

    vertex: Vertex
    field: str
    index: int | None = None

    def __getitem__(self, index: int) -> FieldRef:
        size = len(self.vertex.row_tensors.get(self.field, ()))
        index = check.require_integer(index, "the index of a field")
        if not 0 <= index < size:
            raise index_error(
                f"field {index} of '{self.field}' of {self.vertex}, which has {size}",
                where=user_line(),
                fix="call graph.setFieldSize before",
            )
        return FieldRef(self.vertex, self.field, index)

    def size(self) -> int:
        """Returns the number of fields of a vector of fields, or of elements of any other field."""
        if self.field in self.vertex.row_tensors:
            return len(self.vertex.row_tensors[self.field])
        rows = self.vertex.rows.get(self.field, ())
        declared = self.vertex.codelet.fields.get(self.field)
        return len(rows) if declared is not None and declared.rank == 2 else sum(rows)


@dc.dataclass(frozen=True, slots=True, eq=False)
class DataStream:
    """A stream between the host and the device.

    Attributes:
      name: the name by which the host connects it.
      type: the element type.
      size: the number of elements of one transfer.
      to_device: whether it goes to the device.
    """

    name: str
    type: Type
    size: int
    to_device: bool

    def numElements(self) -> int:
        """Returns the number of elements of a transfer."""
        return self.size

    def elementType(self) -> Type:
        """Returns the element type."""
        return self.type

    def handle(self) -> str:
        """Returns the name."""
        return self.name


@dc.dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A program that `program.Call` calls."""

    body: Program


@dc.dataclass(frozen=True, slots=True, eq=False)
class RemoteBuffer:
    """Rows of elements in streaming memory.

    Attributes:
      handle: the host's name for it.
      number: its index among the remote buffers.
      type: the element type.
      size: elements of a row.
      repeats: the number of rows.
    """

    handle: str
    number: int
    type: Type
    size: int
    repeats: int

    def numElements(self) -> int:
        """Returns the number of elements of a row."""
        return self.size

    def getRepeats(self) -> int:
        """Returns the number of rows."""
        return self.repeats

    def elementType(self) -> Type:
        """Returns the element type."""
        return self.type

    def getHandle(self) -> str:
        """Returns the name."""
        return self.handle
