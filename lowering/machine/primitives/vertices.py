"""What the cost rules share: a tile's part of a tensor, the rates of inner loops, vertices.

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
"""What runs nothing and moves nothing; its result is its operand under another name."""

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


def c_type(dtype: str) -> str:
    """What the original calls an element type."""
    return _C_TYPES.get(dtype, dtype)


def is_float(dtype: str) -> bool:
    """Whether work on such elements counts as floating-point operations."""
    return dtype.startswith(("float", "bfloat", "complex"))


def ceil_div(number: int, by: int) -> int:
    """Quotient, rounded up."""
    return -(-number // by)


def width(dtype: str) -> int:
    """Elements of a 64-bit vector."""
    return max(1, mapping.VECTOR_BYTES // Shape((), dtype).element_bytes)


def largest(shapes: Iterable[Shape]) -> Shape:
    """The shape of most elements; of equal ones the one of most bytes."""
    return max(shapes, key=lambda shape: (shape.elements, shape.bytes), default=Shape((0,), "bool"))


def spread(shape: Shape, target: Target) -> mapping.TileMapping:
    """How a tensor lies that nothing wants otherwise: linearly."""
    return mapping.linear(shape.elements, shape.element_bytes, target.tiles_per_ipu)


@dc.dataclass(frozen=True, slots=True)
class Rate:
    """What one pass through an inner loop does.

    Attributes:
      cycles: of one worker.
      elements: that it deals with; 0: as many as a 64-bit vector holds.
    """

    cycles: float
    elements: int = 0

    def loop(self, elements: int, dtype: str) -> float:
        """A worker's cycles for so many elements."""
        return ceil_div(elements, self.elements or width(dtype)) * self.cycles


def supervisor(worker_cycles: float, target: Target, launch: int = LAUNCH) -> float:
    """Tile cycles of a vertex whose busiest worker takes `worker_cycles`."""
    return target.workers * worker_cycles + launch


def on_worker(elements: int, target: Target) -> int:
    """The busiest worker's part of a tile's elements."""
    return ceil_div(elements, target.workers)


def share_of(shape: Shape, target: Target) -> int:
    """The busiest worker's part of a tensor that nothing wants otherwise."""
    return on_worker(spread(shape, target).most_elements, target)


def vertex(name: str, dtype: str, tiles: int) -> tuple[Vertices, ...]:
    """One vertex of a kind on each of some tiles, named after what it does."""
    return (Vertices(f"{name}<{c_type(dtype)}>", 1, tiles),)


def camel(name: str) -> str:
    """`reduce_sum` as `ReduceSum`."""
    parts = name.replace("-", "_").split("_")
    return "".join(part[:1].upper() + part[1:] for part in parts)


def superstep(
    kind: str,
    on: tuple[str, int],
    compute: float,
    received: float = 0.0,
    flops: float = 0.0,
    source: str = "formula",
) -> Cost:
    """One superstep, in which tiles keep what they receive until they have computed.

    Args:
      kind: of the vertex that each tile has; the superstep is called as it is, without its library.
      on: the element type, and how many tiles take part.
      compute: cycles of the slowest tile.
      received: bytes of the busiest tile.
      flops: of all tiles.
      source: of the cycles, see `Cost`.
    """
    return Cost(
        phases=(Phase(kind.rpartition("::")[2], compute, received),),
        temporary_bytes=received,
        vertices=vertex(kind, *on),
        flops=flops,
        source=source,
    )


def by_workers(
    op: Operation,
    target: Target,
    shape: Shape,
    worker_cycles: float,
    *,
    library: str = "popops",
    launch: int = LAUNCH,
) -> Cost:
    """One compute set named after the operation, on the tiles that hold `shape`."""
    on = shape.dtype, spread(shape, target).used
    return superstep(f"{library}::{camel(op.name)}", on, supervisor(worker_cycles, target, launch))


def fastest(costs: Iterable[Cost], target: Target) -> Cost:
    """The first of the costs of the fewest cycles."""
    rates = target.exchange_bytes, target.exchange_cycles, target.sync_cycles
    return min(costs, key=lambda cost: cost.cycles(*rates))


def free(op: Operation, target: Target) -> Cost:
    """The rule of what runs nothing on the tiles."""
    return FREE


def alike(rule: Rule, names: str) -> dict[str, Rule]:
    """One rule for several primitives, whose names are the words of a text."""
    return dict.fromkeys(names.split(), rule)


def merged(*tables: Mapping[str, Rule]) -> dict[str, Rule]:
    """All rules of tables that have no name in common.

    Raises:
      ValueError: two tables have a rule for the same primitive.
    """
    rules: dict[str, Rule] = {}
    for table in tables:
        if twice := rules.keys() & table.keys():
            raise ValueError(f"two rules for {sorted(twice)}")
        rules |= table
    return rules
