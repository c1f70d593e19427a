"""Compute sets of one vertex on each of some tiles."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence

from ipujax.poplar import Graph, Tensor, program

PlainValue = bool | int | float


@dc.dataclass(frozen=True)
class Connection:
    """The tensor that a field of all vertices is connected with.

    Attributes:
      tensor: the tensor.
      has_rows: whether the vertex on the k-th tile gets row k; else all get the whole tensor.
      rank: the field's rank.
    """

    tensor: Tensor
    has_rows: bool = True
    rank: int = 1

    def part_of_vertex(self, number: int) -> Tensor:
        """Returns the part of the tensor for the n-th vertex, with the field's rank."""
        part = self.tensor[number] if self.has_rows else self.tensor
        if self.rank < 2:
            return part.flatten()
        return part.flatten(1) if part.rank() > 1 else part.expand([0])


def add_compute_set(
    graph: Graph,
    sequence: program.Sequence,
    name: str,
    vertex_type: str,
    tiles: Sequence[int],
    connections: Mapping[str, Connection],
    plain_fields: Mapping[str, PlainValue] | None = None,
) -> None:
    """Executes a compute set with a vertex of one type on each tile.

    Args:
      graph: the graph, which knows the type.
      sequence: the sequence that the compute set is added to.
      name: the compute set's name.
      vertex_type: the codelet's name.
      tiles: the tiles.
      connections: the tensors by field.
      plain_fields: the values of plain fields.
    """
    compute_set = graph.addComputeSet(name)
    for number, tile in enumerate(tiles):
        fields = {
            field: connection.part_of_vertex(number) for field, connection in connections.items()
        }
        vertex = graph.addVertex(compute_set, vertex_type, {**fields, **(plain_fields or {})})
        graph.setTileMapping(vertex, tile)
    sequence.add(program.Execute(compute_set))
