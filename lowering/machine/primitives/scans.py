"""Running reductions, as JAX's associative scan computes them (jax.lax.associative_scan).

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
from lowering.machine.primitives.elementwise import BINARY_START_OTHERS, cycles_of
from lowering.machine.primitives.special import Counts
from lowering.machine.primitives.vertices import (
    FREE,
    Rule,
    camel,
    is_float,
    share_of,
    spread,
    supervisor,
    vertex,
)
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
"""What combines two elements."""


def running(op: Operation, target: Target) -> Cost:
    """Combines going up, combines going down, interleaves; for each power of two."""
    shape, axis = op.operands[0], int(op.param("axis", 0))
    if not shape.elements or not shape.dims or shape.dims[axis] <= 1:
        return FREE
    fold, row = FOLDS[op.name], shape.dims[axis]
    others = shape.elements // row
    reach = row * math.prod(shape.dims[axis + 1 :])
    lying = spread(shape, target)
    alone = lying.used == 1 or reach <= lying.most_elements  # every row is on one tile
    name, each = camel(op.name), cycles_of(fold, shape.dtype)
    phases: list[Phase] = []
    combined = 0
    while row > 1:
        pairs, between = row // 2, (row - 1) // 2
        for count in filter(None, (pairs, between)):
            phases.append(_combine(name, Shape((count, others), shape.dtype), each, alone, target))
            combined += count * others
        most = spread(Shape((row, others), shape.dtype), target).most_bytes
        phases.append(Phase("Interleave", most / VECTOR_BYTES, 0.0 if alone else float(most)))
        row = pairs
    functions = sum(fold.values())
    return Cost(
        phases=tuple(phases),
        temporary_bytes=float(2 * lying.most_bytes),
        vertices=vertex(f"popops::{name}", shape.dtype, lying.used),
        flops=float(combined * functions) if is_float(shape.dtype) else 0.0,
    )


def _combine(name: str, shape: Shape, each: float, alone: bool, target: Target) -> Phase:
    worker = BINARY_START_OTHERS + share_of(shape, target) * each
    received = 0.0 if alone else float(spread(shape, target).most_bytes)
    return Phase(name, supervisor(worker, target), received)


RULES: dict[str, Rule] = dict.fromkeys(FOLDS, running)
