"""The cost of operations that only rename elements, and of those that write constants.

In the original, a tensor is a list of intervals of variables: reshaping, permuting, slicing,
concatenating, repeating and padding make another list and move nothing. A consumer that wants
another layout is charged for the rearrangement.
"""

from __future__ import annotations

from lowering.machine.cost import Cost, Operation, Phase
from lowering.machine.primitives.rule_helpers import (
    FREE,
    Rule,
    ceil_div,
    default_mapping,
    one_vertex_per_tile,
    rules_for_names,
    vector_width,
    worker_set_cost,
    worker_share,
    zero_cost_rule,
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


def copy_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of a copy: every tile copies what it holds."""
    mapping = default_mapping(op.first_result, target)
    if not mapping.elements:
        return FREE
    cycles = COPY_CALL + mapping.most_bytes / COPY_BYTES_PER_CYCLE
    return Cost(
        phases=(Phase("OnTileCopy", cycles),),
        vertices=one_vertex_per_tile("poplar_rt::Memcpy", op.first_result.dtype, mapping.used),
    )


def fill_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of a fill: every tile writes its elements.

    A worker takes 16 + n / width + 7 cycles for n elements, for halves 26 + n / 4
    (docs/hardware.md, Other vertices).
    """
    if not op.first_result.elements:
        return FREE
    vectors = ceil_div(worker_share(op.first_result, target), vector_width(op.first_result.dtype))
    worker = 26 + vectors if op.first_result.dtype == "float16" else 16 + vectors + 7
    return worker_set_cost(op, target, op.first_result, worker)


RULES: dict[str, Rule] = {
    **rules_for_names(zero_cost_rule, _VIEWS + "empty empty2"),
    **rules_for_names(copy_cost, "copy copy_p"),
    **rules_for_names(fill_cost, "iota zeros_like"),
}
