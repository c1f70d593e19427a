"""Operations that only name elements anew, and the few that write what nobody computes.

In the original, a tensor is a list of intervals of variables: reshaping, permuting, slicing,
concatenating, repeating and padding make another list and move nothing. What a consumer wants
elsewhere is charged where its wish is known.
"""

from __future__ import annotations

from lowering.machine.cost import Cost, Operation, Phase
from lowering.machine.primitives.vertices import (
    FREE,
    Rule,
    alike,
    by_workers,
    ceil_div,
    free,
    share_of,
    spread,
    vertex,
    width,
)
from lowering.machine.target import Target

COPY_CALL = 288
COPY_BYTES_PER_CYCLE = 8
"""[H] ipu-stack, C600: 8 KiB on one tile take 1308 cycles, a call 288."""


_VIEWS = """
bitcast_convert_type broadcast_in_dim broadcast_to complex concatenate expand_dims imag pad real
reshape rev slice split squeeze stack tile transpose unstack
"""
VIEWS = frozenset(_VIEWS.split())
"""The primitives that move nothing."""


def copy(op: Operation, target: Target) -> Cost:
    """Every tile copies what it holds."""
    held = spread(op.result, target)
    if not held.elements:
        return FREE
    cycles = COPY_CALL + held.most_bytes / COPY_BYTES_PER_CYCLE
    return Cost(
        phases=(Phase("OnTileCopy", cycles),),
        vertices=vertex("poplar_rt::Memcpy", op.result.dtype, held.used),
    )


def fill(op: Operation, target: Target) -> Cost:
    """Every tile writes its elements.

    A worker takes 16 + n / width + 7 cycles for n elements, for halves 26 + n / 4
    (docs/hardware.md, Other vertices).
    """
    if not op.result.elements:
        return FREE
    vectors = ceil_div(share_of(op.result, target), width(op.result.dtype))
    worker = 26 + vectors if op.result.dtype == "float16" else 16 + vectors + 7
    return by_workers(op, target, op.result, worker)


RULES: dict[str, Rule] = {
    **alike(free, _VIEWS + "empty empty2"),
    **alike(copy, "copy copy_p"),
    **alike(fill, "iota zeros_like"),
}
