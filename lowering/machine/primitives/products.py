"""Products of matrices and convolutions: planned elsewhere.

`dot_general` and `conv_general_dilated` go to the planner. Products of ragged groups are the dense
one that JAX makes of them, over rows masked for each group (jax.lax.ragged_dot); products of
block-scaled operands multiply these by their scales first. Attention that is written for other
chips is taken to reach half the peak of the multiplying units on all tiles: a stated default.
"""

from __future__ import annotations

import math

from lowering.machine.cost import Cost, Operation, Shape
from lowering.machine.planner import multi_conv_cost, product_cost
from lowering.machine.primitives.composite import assembled, chain, product
from lowering.machine.primitives.vertices import (
    FREE,
    Rule,
    alike,
    camel,
    ceil_div,
    largest,
    spread,
    superstep,
)
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
    kind, on = f"poplin::{camel(op.name)}", (largest(arrays).dtype, target.tiles_per_ipu)
    return superstep(kind, on, cycles, float(moved), flops=2.0 * macs, source="default")


def ragged(op: Operation, target: Target) -> Cost:
    """Rows of each group are kept, all others zero; then one product over groups and channels."""
    if len(op.operands) < 3 or not op.result.elements or not op.operands[0].elements:
        return FREE
    rows, table, sizes = op.operands[:3]
    groups, dtype = max(1, sizes.dims[-1] if sizes.dims else 1), rows.dtype
    masked = chain(("select_n",), Shape((groups, rows.elements), dtype), target)
    if len(op.result.dims) > len(rows.dims):  # [m, k] x [k, n], one result for each group of k
        inner = _root(rows.elements * table.elements * groups, op.result.elements)
        extents = groups * ceil_div(rows.elements, inner), inner, ceil_div(table.elements, inner)
    else:  # [m, k] x [groups, k, n], rows in groups
        inner = _root(rows.elements * table.elements, groups * op.result.elements)
        height = ceil_div(rows.elements, inner)
        extents = height, groups * inner, ceil_div(op.result.elements, height)
    return assembled([(1, masked), (1, product(1, *extents, dtype, target))])


def _root(square: int, by: int) -> int:
    return max(1, round(math.sqrt(square / max(1, by))))


def scaled(op: Operation, target: Target) -> Cost:
    """Operands as halves, each block multiplied by its scale, then their product."""
    left, right = op.operands[:2]
    if not op.result.elements or not left.elements or not right.elements:
        return FREE
    inner = left.dims[-1] if left.dims else 1
    batch = left.dims[0] if len(left.dims) > 2 else 1
    height = ceil_div(left.elements, batch * inner)
    width = ceil_div(op.result.elements, batch * height)
    halves = [Shape(shape.dims, "bfloat16") for shape in (left, right)]
    scales = [(1, chain(("mul",), shape, target)) for shape in halves]
    return assembled([*scales, (1, product(batch, height, inner, width, "bfloat16", target))])


_ATTENTION = """
dot_product_attention_bwd dot_product_attention_bwd_wrapper dot_product_attention_fp8_bwd
dot_product_attention_fp8_bwd_wrapper dot_product_attention_fp8_fwd
dot_product_attention_fp8_fwd_wrapper dot_product_attention_fwd dot_product_attention_fwd_wrapper
"""

RULES: dict[str, Rule] = {
    **alike(product_cost, "conv_general_dilated dot_general"),
    **alike(other_product, "cudnn_fusion" + _ATTENTION),
    **alike(scaled, "scaled_dot scaled_matmul scaled_matmul_wrapper"),
    "multi_conv": multi_conv_cost,
    "ragged_dot_general": ragged,
}
