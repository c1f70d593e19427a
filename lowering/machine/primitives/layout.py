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
    ceil_div,
    on_worker,
    one_phase,
    spread,
    supervisor,
    vertex,
    width,
)
from lowering.machine.target import Target

COPY_CALL = 288
COPY_BYTES_PER_CYCLE = 8
"""[H] ipu-stack, C600: 8 KiB on one tile take 1308 cycles, a call 288."""


VIEWS: frozenset[str] = frozenset(
    {
        "bitcast_convert_type",
        "broadcast_in_dim",
        "broadcast_to",
        "complex",
        "concatenate",
        "expand_dims",
        "imag",
        "pad",
        "real",
        "reshape",
        "rev",
        "slice",
        "split",
        "squeeze",
        "stack",
        "tile",
        "transpose",
        "unstack",
    }
)
"""The primitives that move nothing."""


def view(op: Operation, target: Target) -> Cost:
    """Another name for the same elements."""
    return FREE


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
    held = spread(op.result, target)
    if not held.elements:
        return FREE
    share = ceil_div(on_worker(held.most_elements, target), width(op.result.dtype))
    worker = 26 + share if op.result.dtype == "float16" else 16 + share + 7
    return one_phase(op, target, op.result, supervisor(worker, target))


RULES: dict[str, Rule] = {
    **dict.fromkeys(VIEWS, view),
    "copy": copy,
    "copy_p": copy,
    "empty": view,
    "empty2": view,
    "iota": fill,
    "zeros_like": fill,
}
