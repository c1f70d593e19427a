"""The cost of chains of elementwise operations in one vertex.

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
from lowering.machine.primitives.constant_folding import simplify_constant_operand
from lowering.machine.primitives.elementwise_cost import (
    BINARY_START_OTHERS,
    elementwise_cost,
    worker_loops_of_operation,
)
from lowering.machine.primitives.rule_helpers import (
    FREE,
    camel_case,
    ceil_div,
    default_mapping,
    largest_shape,
    one_vertex_per_tile,
    supervisor_cycles,
    vector_width,
    worker_share,
)
from lowering.machine.target import Target

MOST_FUSED = 8
"""Operations that one vertex takes at most."""


def elementwise_chain_cost(chain: Sequence[Operation], target: Target) -> Cost:
    """Returns the cost of a chain of elementwise operations, each on the result before.

    Args:
      chain: elementwise operations on arrays of one shape, in order; more than `MOST_FUSED` make
        several vertices.
      target: the chip.

    Returns:
      One cost for all of them, in which each vertex is a phase.
    """
    groups = [chain[i : i + MOST_FUSED] for i in range(0, len(chain), MOST_FUSED)]
    costs = [_cost_of_fused_vertex(group, target) for group in groups]
    phases = tuple(phase for cost in costs for phase in cost.phases)
    if not phases:
        return FREE
    return Cost(
        phases=phases,
        vertices=tuple(kind for cost in costs for kind in cost.vertices),
        flops=sum(cost.flops for cost in costs),
        in_place=costs[0].in_place,
        source=_source_of_costs(costs),
    )


def _cost_of_fused_vertex(group: Sequence[Operation], target: Target) -> Cost:
    """Returns the cost of one vertex, at most that of its operations one by one."""
    group = [simplify_constant_operand(op) for op in group]
    costs = [elementwise_cost(op, target) for op in group]
    running = [(op, cost) for op, cost in zip(group, costs, strict=True) if not cost.moves_nothing]
    if len(running) <= 1:
        return running[0][1] if running else FREE
    shape = largest_shape(shape for op, _ in running for shape in (*op.results, *op.operands))
    lanes = min(
        vector_width(shape.dtype) for op, _ in running for shape in (*op.operands, *op.results)
    )
    per_vector = (
        _count_loaded_arrays(running) + 1 + sum(_arithmetic_cycles(op, lanes) for op, _ in running)
    )
    vectors = ceil_div(worker_share(shape, target), lanes)
    fused_cycles = supervisor_cycles(BINARY_START_OTHERS + vectors * per_vector, target)
    separate_cycles = sum(phase.compute for _, cost in running for phase in cost.phases)
    dtype = running[0][0].first_result.dtype
    name = "popops::MapExpression_" + "_".join(camel_case(op.name) for op, _ in running)
    return Cost(
        phases=(Phase("MapExpression", min(fused_cycles, separate_cycles)),),
        vertices=one_vertex_per_tile(name, dtype, default_mapping(shape, target).used),
        flops=sum(cost.flops for _, cost in running),
        in_place=running[0][1].in_place,
        source=_source_of_costs(costs),
    )


def _source_of_costs(costs: Iterable[Cost]) -> str:
    return "formula" if all(cost.source == "formula" for cost in costs) else "default"


def _count_loaded_arrays(running: Sequence[tuple[Operation, Cost]]) -> int:
    """Returns the number of arrays that a chain loads from outside."""
    return max(
        1, sum(worker_loops_of_operation(op).reads for op, _ in running) - (len(running) - 1)
    )


def _arithmetic_cycles(op: Operation, lanes: int) -> float:
    """Returns the cycles of an operation for `lanes` elements, without its loads and its store.

    A loop's loads and store share instructions with arithmetic where they can; the rest of it
    is at least one cycle.
    """
    loops = worker_loops_of_operation(op)
    cycles = 0.0
    for times, rate in loops.rates:
        per_pass = rate.elements or vector_width(loops.dtype)
        cycles += times * max(1.0, rate.cycles - loops.reads) * lanes / per_pass
    return cycles
