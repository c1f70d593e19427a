"""Shared helpers of the cost rules: a tile's part of a tensor, rates of inner loops, vertices.

Formulas are from the cycle estimators of poplibs@7eac0f26 (docs/hardware.md, Other vertices), which
give worker cycles. One worker issues every sixth cycle, so a tile takes six times what its busiest
worker takes.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Iterable, Mapping

from lowering.machine import mapping
from lowering.machine.cost import Cost, Operation, Phase, Shape, Vertices
from lowering.machine.target import Target

Rule = Callable[[Operation, Target], Cost]

FREE = Cost(moves_nothing=True, in_place=True)
"""The cost of an operation that only gives its operand another name: nothing runs or moves."""

LAUNCH = 11
"""Tile cycles in which a supervisor starts its workers (poplibs: basicOpSupervisorOverhead)."""

_C_TYPES = {
    "float16": "half",
    "bfloat16": "half",
    "float32": "float",
    "int32": "int",
    "uint32": "unsigned int",
    "int16": "short",
    "uint16": "unsigned short",
}


def c_type_name(dtype: str) -> str:
    """Returns the original's name for an element type."""
    return _C_TYPES.get(dtype, dtype)


def is_float(dtype: str) -> bool:
    """Returns whether work on such elements counts as floating-point operations."""
    return dtype.startswith(("float", "bfloat", "complex"))


def ceil_div(number: int, by: int) -> int:
    """Divides integers and rounds up."""
    return -(-number // by)


def vector_width(dtype: str) -> int:
    """Returns the elements of a 64-bit vector."""
    return max(1, mapping.VECTOR_BYTES // Shape((), dtype).element_bytes)


def largest_shape(shapes: Iterable[Shape]) -> Shape:
    """Returns the shape with most elements; of equal ones the one with most bytes."""
    return max(shapes, key=lambda shape: (shape.elements, shape.bytes), default=Shape((0,), "bool"))


def default_mapping(shape: Shape, target: Target) -> mapping.TileMapping:
    """Returns the mapping of a tensor for which no plan asks another: a linear one."""
    return mapping.map_linearly(shape.elements, shape.element_bytes, target.tiles_per_ipu)


@dc.dataclass(frozen=True, slots=True)
class LoopRate:
    """The rate of an inner loop: the cycles and elements of one pass through it.

    Attributes:
      cycles: cycles of one worker.
      elements: elements that it handles; 0: as many as a 64-bit vector holds.
    """

    cycles: float
    elements: int = 0

    def cycles_of_loop(self, elements: int, dtype: str) -> float:
        """Returns a worker's cycles for so many elements."""
        return ceil_div(elements, self.elements or vector_width(dtype)) * self.cycles


def supervisor_cycles(worker_cycles: float, target: Target, launch: int = LAUNCH) -> float:
    """Returns the tile cycles of a vertex whose busiest worker takes `worker_cycles`."""
    return target.workers * worker_cycles + launch


def elements_per_worker(elements: int, target: Target) -> int:
    """Returns the busiest worker's part of a tile's elements."""
    return ceil_div(elements, target.workers)


def worker_share(shape: Shape, target: Target) -> int:
    """Returns the busiest worker's part of a tensor in its default mapping."""
    return elements_per_worker(default_mapping(shape, target).most_elements, target)


def one_vertex_per_tile(name: str, dtype: str, tiles: int) -> tuple[Vertices, ...]:
    """Returns the vertices of a kind, one on each of some tiles."""
    return (Vertices(f"{name}<{c_type_name(dtype)}>", 1, tiles),)


def camel_case(name: str) -> str:
    """Returns a name in camel case: `reduce_sum` as `ReduceSum`."""
    parts = name.replace("-", "_").split("_")
    return "".join(part[:1].upper() + part[1:] for part in parts)


def superstep_cost(
    kind: str,
    dtype_and_tiles: tuple[str, int],
    compute: float,
    received: float = 0.0,
    flops: float = 0.0,
    source: str = "formula",
) -> Cost:
    """Returns the cost of a superstep, in which tiles keep received data until they are done.

    Args:
      kind: the kind of vertex on each tile; the superstep has its name, without its library.
      dtype_and_tiles: the element type, and how many tiles take part.
      compute: cycles of the slowest tile.
      received: bytes that the busiest tile receives.
      flops: floating-point operations of all tiles.
      source: the source of the cycles, see `Cost`.
    """
    return Cost(
        phases=(Phase(kind.rpartition("::")[2], compute, received),),
        temporary_bytes=received,
        vertices=one_vertex_per_tile(kind, *dtype_and_tiles),
        flops=flops,
        source=source,
    )


def worker_set_cost(
    op: Operation,
    target: Target,
    shape: Shape,
    worker_cycles: float,
    *,
    library: str = "popops",
    launch: int = LAUNCH,
) -> Cost:
    """Returns the cost of one compute set, named as the operation, on the tiles of `shape`."""
    dtype_and_tiles = shape.dtype, default_mapping(shape, target).used
    return superstep_cost(
        f"{library}::{camel_case(op.name)}",
        dtype_and_tiles,
        supervisor_cycles(worker_cycles, target, launch),
    )


def fastest_cost(costs: Iterable[Cost], target: Target) -> Cost:
    """Returns the first of the costs with the fewest cycles."""
    rates = target.exchange_bytes, target.exchange_cycles, target.sync_cycles
    return min(costs, key=lambda cost: cost.cycles_with_exchange(*rates))


def zero_cost_rule(op: Operation, target: Target) -> Cost:
    """Returns the cost of an operation that runs nothing on the tiles."""
    return FREE


def rules_for_names(rule: Rule, names: str) -> dict[str, Rule]:
    """Returns a table with one rule for several primitives, named in one text."""
    return dict.fromkeys(names.split(), rule)


def merge_rule_tables(*tables: Mapping[str, Rule]) -> dict[str, Rule]:
    """Merges tables of rules that have no name in common.

    Raises:
      ValueError: two tables have a rule for the same primitive.
    """
    rules: dict[str, Rule] = {}
    for table in tables:
        if common_names := rules.keys() & table.keys():
            raise ValueError(f"two rules for {sorted(common_names)}")
        rules |= table
    return rules
