"""Products of matrices and convolutions: planned elsewhere.

`dot_general` and `conv_general_dilated` go to the planner. Their relatives that the original does
not have (ragged and block-scaled products, attention written for other chips) are taken to reach
half the peak of the multiplying units on all tiles: a stated default.
"""

from __future__ import annotations

import math

from lowering.machine.cost import Cost, Operation, Phase
from lowering.machine.planner import product_cost
from lowering.machine.primitives.vertices import FREE, Rule, camel, largest, spread, vertex
from lowering.machine.target import Target

EFFICIENCY = 0.5


def other_product(op: Operation, target: Target) -> Cost:
    """All tiles at half their peak: each result element takes the last extent of an operand."""
    arrays = [shape for shape in op.operands if shape.dims]
    results = sum(result.elements for result in op.results)
    depth = max((shape.dims[-1] for shape in arrays), default=1)
    if not results or not depth:
        return FREE
    halves = any(shape.dtype in ("float16", "bfloat16") for shape in arrays)
    rates = dict(target.macs_per_cycle)
    rate = rates["float16", "float32"] if halves else rates["float32", "float32"]
    macs = results * depth
    cycles = macs / (rate * target.tiles_per_ipu * EFFICIENCY)
    moved = sum(spread(shape, target).most_bytes for shape in arrays) * math.sqrt(len(arrays))
    name = camel(op.name)
    return Cost(
        phases=(Phase(name, cycles, float(moved)),),
        temporary_bytes=float(moved),
        vertices=vertex(f"poplin::{name}", largest(arrays).dtype, target.tiles_per_ipu),
        flops=2.0 * macs,
        source="default",
    )


RULES: dict[str, Rule] = {
    "conv_general_dilated": product_cost,
    "dot_general": product_cost,
    **dict.fromkeys(
        (
            "cudnn_fusion",
            "dot_product_attention_bwd",
            "dot_product_attention_bwd_wrapper",
            "dot_product_attention_fp8_bwd",
            "dot_product_attention_fp8_bwd_wrapper",
            "dot_product_attention_fp8_fwd",
            "dot_product_attention_fp8_fwd_wrapper",
            "dot_product_attention_fwd",
            "dot_product_attention_fwd_wrapper",
            "ragged_dot_general",
            "scaled_dot",
            "scaled_matmul",
            "scaled_matmul_wrapper",
        ),
        other_product,
    ),
}
