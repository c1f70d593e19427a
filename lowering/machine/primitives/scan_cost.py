"""The cost of running reductions, as JAX's associative scan computes them.

Of n elements, pairs of neighbours are combined, the n / 2 results scanned in the same way, the
elements between combined with what is left of them, and both interleaved. So a scan combines about
two elements for each of its own in 2 log2 n steps, and copies as many. Combining has the loops of
the plain operations; copies of what lies on a tile, and of what comes from others, take what
docs/hardware.md, Other vertices, says of copies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from lowering.machine.cost import Cost, Operation, Phase, Shape
from lowering.machine.mapping import VECTOR_BYTES
from lowering.machine.primitives.elementwise_cost import BINARY_START_OTHERS, cycles_per_element
from lowering.machine.primitives.rule_helpers import (
    FREE,
    Rule,
    camel_case,
    default_mapping,
    is_float,
    one_vertex_per_tile,
    supervisor_cycles,
    worker_share,
)
from lowering.machine.primitives.special import Counts
from lowering.machine.target import Target

# jnp.logaddexp: a maximum, and the logarithm of 1 + exp(-|difference|), with a case for infinities.
_LOGADDEXP = dict(max=1, sub=1, ne=1, add=2, abs=1, neg=1, exp=1, log1p=1, select_n=1)
FOLDS: Mapping[str, Counts] = {
    "cumlogsumexp": _LOGADDEXP,
    "cummax": {"max": 1},
    "cummin": {"min": 1},
    "cumprod": {"mul": 1},
    "cumsum": {"add": 1},
}
"""The counts of operations that combine two elements."""


def scan_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of a scan: it combines going up and down, and interleaves."""
    shape, axis = op.operands[0], int(op.param("axis", 0))
    if not shape.elements or not shape.dims or shape.dims[axis] <= 1:
        return FREE
    fold, row = FOLDS[op.name], shape.dims[axis]
    num_rows = shape.elements // row
    reach = row * math.prod(shape.dims[axis + 1 :])
    mapping = default_mapping(shape, target)
    is_local = mapping.used == 1 or reach <= mapping.most_elements  # every row is on one tile
    name, cycles_each = camel_case(op.name), cycles_per_element(fold, shape.dtype)
    phases: list[Phase] = []
    combined = 0
    while row > 1:
        pairs, inner_pairs = row // 2, (row - 1) // 2
        for count in filter(None, (pairs, inner_pairs)):
            phases.append(
                _phase_of_combining(
                    name, Shape((count, num_rows), shape.dtype), cycles_each, is_local, target
                )
            )
            combined += count * num_rows
        most = default_mapping(Shape((row, num_rows), shape.dtype), target).most_bytes
        phases.append(Phase("Interleave", most / VECTOR_BYTES, 0.0 if is_local else float(most)))
        row = pairs
    functions = sum(fold.values())
    return Cost(
        phases=tuple(phases),
        temporary_bytes=float(2 * mapping.most_bytes),
        vertices=one_vertex_per_tile(f"popops::{name}", shape.dtype, mapping.used),
        flops=float(combined * functions) if is_float(shape.dtype) else 0.0,
    )


def _phase_of_combining(
    name: str, shape: Shape, each: float, is_local: bool, target: Target
) -> Phase:
    worker = BINARY_START_OTHERS + worker_share(shape, target) * each
    received = 0.0 if is_local else float(default_mapping(shape, target).most_bytes)
    return Phase(name, supervisor_cycles(worker, target), received)


RULES: dict[str, Rule] = dict.fromkeys(FOLDS, scan_cost)
