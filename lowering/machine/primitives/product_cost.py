"""Products of matrices and convolutions, most of which the planner costs.

`dot_general` and `conv_general_dilated` go to the planner. Products of ragged groups are the dense
one that JAX makes of them, over rows masked for each group (jax.lax.ragged_dot); products of
block-scaled operands multiply these by their scales first. Attention that is written for other
chips is taken to reach half the peak of the multiplying units on all tiles: a stated default.
"""

from __future__ import annotations

import dataclasses as dc
import math

from lowering.machine.cost import Cost, Operation, Shape
from lowering.machine.planner import multi_conv_cost, product_cost
from lowering.machine.primitives.composite import cost_of_chain, cost_of_matmul, sum_costs
from lowering.machine.primitives.rule_helpers import (
    FREE,
    Rule,
    camel_case,
    ceil_div,
    default_mapping,
    largest_shape,
    rules_for_names,
    superstep_cost,
)
from lowering.machine.target import Target

EFFICIENCY = 0.5


def attention_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost at half the peak: a result element takes the last extent of an operand."""
    arrays = [shape for shape in op.operands if shape.dims]
    results = sum(result.elements for result in op.results)
    depth = max((shape.dims[-1] for shape in arrays), default=1)
    if not results or not depth:
        return FREE
    halves = any(shape.dtype in ("float16", "bfloat16") for shape in arrays)
    rates = dict(target.macs_per_cycle)
    units = ("float16" if halves else "float32", "float32")
    rate = rates[units]
    macs = results * depth
    cycles = macs / (rate * target.tiles_per_ipu * EFFICIENCY)
    moved_bytes = sum(default_mapping(shape, target).most_bytes for shape in arrays) * math.sqrt(
        len(arrays)
    )
    kind, dtype_and_tiles = (
        f"poplin::{camel_case(op.name)}",
        (largest_shape(arrays).dtype, target.tiles_per_ipu),
    )
    cost = superstep_cost(
        kind, dtype_and_tiles, cycles, float(moved_bytes), flops=2.0 * macs, source="default"
    )
    return dc.replace(cost, units=units)


def cost_of_ragged_dot(op: Operation, target: Target) -> Cost:
    """Returns the cost of a ragged product: masked rows, then one product over all groups."""
    if len(op.operands) < 3 or not op.first_result.elements or not op.operands[0].elements:
        return FREE
    rows, table, sizes = op.operands[:3]
    groups, dtype = max(1, sizes.dims[-1] if sizes.dims else 1), rows.dtype
    masked = cost_of_chain(("select_n",), Shape((groups, rows.elements), dtype), target)
    if len(op.first_result.dims) > len(rows.dims):
        # [m, k] x [k, n], one result for each group of k
        contracted = _integer_root_of_quotient(
            rows.elements * table.elements * groups, op.first_result.elements
        )
        extents = (
            groups * ceil_div(rows.elements, contracted),
            contracted,
            ceil_div(table.elements, contracted),
        )
    else:
        # [m, k] x [groups, k, n], rows in groups
        contracted = _integer_root_of_quotient(
            rows.elements * table.elements, groups * op.first_result.elements
        )
        height = ceil_div(rows.elements, contracted)
        extents = height, groups * contracted, ceil_div(op.first_result.elements, height)
    return sum_costs([(1, masked), (1, cost_of_matmul(1, *extents, dtype, target))])


def _integer_root_of_quotient(square: int, by: int) -> int:
    return max(1, round(math.sqrt(square / max(1, by))))


def cost_of_scaled_matmul(op: Operation, target: Target) -> Cost:
    """Returns the cost of operands as halves, each block scaled, and of their product."""
    left_operand, right_operand = op.operands[:2]
    if not op.first_result.elements or not left_operand.elements or not right_operand.elements:
        return FREE
    contracted = left_operand.dims[-1] if left_operand.dims else 1
    batch = left_operand.dims[0] if len(left_operand.dims) > 2 else 1
    height = ceil_div(left_operand.elements, batch * contracted)
    width = ceil_div(op.first_result.elements, batch * height)
    halves = [Shape(shape.dims, "bfloat16") for shape in (left_operand, right_operand)]
    scales = [(1, cost_of_chain(("mul",), shape, target)) for shape in halves]
    return sum_costs(
        [*scales, (1, cost_of_matmul(batch, height, contracted, width, "bfloat16", target))]
    )


_ATTENTION = """
dot_product_attention_bwd dot_product_attention_bwd_wrapper dot_product_attention_fp8_bwd
dot_product_attention_fp8_bwd_wrapper dot_product_attention_fp8_fwd
dot_product_attention_fp8_fwd_wrapper dot_product_attention_fwd dot_product_attention_fwd_wrapper
"""

RULES: dict[str, Rule] = {
    **rules_for_names(product_cost, "conv_general_dilated dot_general"),
    **rules_for_names(attention_cost, "cudnn_fusion" + _ATTENTION),
    **rules_for_names(cost_of_scaled_matmul, "scaled_dot scaled_matmul scaled_matmul_wrapper"),
    "multi_conv": multi_conv_cost,
    "ragged_dot_general": cost_of_ragged_dot,
}
