"""Chains of elementwise operations in one vertex.

The original's map expressions (poplibs: popops/ElementWise, ExpressionGenerator) compute a whole
expression element by element: every array from outside is loaded once, the result stored once, and
between them the operations' own cycles add up. There is one launch and one sync for all of them.
Checked against hand-written 3x3 stencils on GC2 (nine loads, seventeen operations, one store): of
float2 on one IPU it gives 1.22 times, of half4 on sixteen 1.01 times the measured cycles
(`stencil-phase-*` of docs/hardware.md, Measured rows).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lowering.machine.cost import Cost, Operation, Phase
from lowering.machine.primitives.constants import simplified
from lowering.machine.primitives.elementwise import BINARY_START_OTHERS, elementwise, loops_of
from lowering.machine.primitives.vertices import (
    FREE,
    camel,
    ceil_div,
    is_float,
    largest,
    share_of,
    spread,
    supervisor,
    vertex,
    width,
)
from lowering.machine.target import Target

MOST_FUSED = 8
"""Operations that one vertex takes at most."""


def fuse_elementwise(chain: Sequence[Operation], target: Target) -> Cost:
    """What a chain of elementwise operations costs, each of which reads the result before.

    Args:
      chain: elementwise operations on arrays of one shape, in order; more than `MOST_FUSED` make
        several vertices.
      target: the chip.

    Returns:
      One cost for all of them, in which each vertex is a phase.
    """
    groups = [chain[i : i + MOST_FUSED] for i in range(0, len(chain), MOST_FUSED)]
    costs = [_vertex(group, target) for group in groups]
    phases = tuple(phase for cost in costs for phase in cost.phases)
    if not phases:
        return FREE
    return Cost(
        phases=phases,
        vertices=tuple(kind for cost in costs for kind in cost.vertices),
        flops=sum(cost.flops for cost in costs),
        in_place=costs[0].in_place,
        source=_source(costs),
    )


def _vertex(group: Sequence[Operation], target: Target) -> Cost:
    """One vertex; never dearer than its operations one by one."""
    group = [simplified(op) for op in group]
    costs = [elementwise(op, target) for op in group]
    running = [(op, cost) for op, cost in zip(group, costs, strict=True) if not cost.moves_nothing]
    if len(running) <= 1:
        return running[0][1] if running else FREE
    shape = largest(shape for op, _ in running for shape in (*op.results, *op.operands))
    lanes = min(width(shape.dtype) for op, _ in running for shape in (*op.operands, *op.results))
    per_vector = _loads(running) + 1 + sum(_arithmetic(op, lanes) for op, _ in running)
    vectors = ceil_div(share_of(shape, target), lanes)
    fused = supervisor(BINARY_START_OTHERS + vectors * per_vector, target)
    apart = sum(phase.compute for _, cost in running for phase in cost.phases)
    dtype = running[0][0].result.dtype
    name = "popops::MapExpression_" + "_".join(camel(op.name) for op, _ in running)
    return Cost(
        phases=(Phase("MapExpression", min(fused, apart)),),
        vertices=vertex(name, dtype, spread(shape, target).used),
        flops=sum(cost.flops for _, cost in running) if is_float(dtype) else 0.0,
        in_place=running[0][1].in_place,
        source=_source(costs),
    )


def _source(costs: Iterable[Cost]) -> str:
    return "formula" if all(cost.source == "formula" for cost in costs) else "default"


def _loads(running: Sequence[tuple[Operation, Cost]]) -> int:
    """Arrays from outside: all that are read but one per operation after the first."""
    return max(1, sum(loops_of(op).reads for op, _ in running) - (len(running) - 1))


def _arithmetic(op: Operation, lanes: int) -> float:
    """Cycles of the operation alone, without its loads and its store, for `lanes` elements.

    A loop's loads and store share instructions with arithmetic where they can; what is left of it
    without them is at least one cycle.
    """
    loops = loops_of(op)
    cycles = 0.0
    for times, rate in loops.rates:
        per_pass = rate.elements or width(loops.dtype)
        cycles += times * max(1.0, rate.cycles - loops.reads) * lanes / per_pass
    return cycles
