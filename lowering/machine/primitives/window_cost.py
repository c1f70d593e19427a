"""The cost of windows: pooling and its gradients, as poplibs' popnn has them.

Every result folds the elements of its window, which are brought first. Loops are those of the
original's planner (poplibs: lib/popnn/PoolingDefUtil.hpp and PoolPlan.cpp): 3 cycles for a vector
of every element of a window, 5 for gradients of maxima, which compare as well, and 30 for every
row (54 in a later revision). A window that a user's function folds has no loop there, and is a
default.
"""

from __future__ import annotations

import math
from typing import Any

from lowering.machine.cost import Cost, Operation
from lowering.machine.primitives.rule_helpers import (
    FREE,
    LAUNCH,
    Rule,
    camel_case,
    ceil_div,
    default_mapping,
    is_float,
    rules_for_names,
    superstep_cost,
    vector_width,
)
from lowering.machine.target import Target

VECTOR = 3
MAXIMUM_BACKWARD = 5
ROW = 30

_OWN_FUNCTION = ("reduce_window", "select_and_scatter")
_MAXIMA_BACKWARD = ("select_and_gather_add", "select_and_scatter", "select_and_scatter_add")


def _product_of_extents(extents: Any) -> int:
    return math.prod(int(extent) for extent in extents)


def window_reduction_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of folding a window for every result; gradients find each maximum again."""
    array, dtype = op.operands[0], op.operands[0].dtype
    folded_shape = array if "scatter" in op.name else op.first_result
    window_size = _product_of_extents(op.param("window_dimensions", (1,)))
    strides = _product_of_extents(op.param("window_strides", (1,)))
    mapping = default_mapping(folded_shape, target)
    if not mapping.elements:
        return FREE
    vectors = ceil_div(mapping.most_elements, vector_width(dtype))
    rows = ceil_div(mapping.most_elements, max(1, math.prod(folded_shape.dims[-2:])))
    cycles_per_vector = MAXIMUM_BACKWARD if op.name in _MAXIMA_BACKWARD else VECTOR
    # The planner's cycles are those of a tile, whose workers share the work.
    compute = LAUNCH + rows * ROW + vectors * window_size * cycles_per_vector
    received = mapping.most_elements * min(window_size, strides) * array.element_bytes
    return superstep_cost(
        f"popnn::{camel_case(op.name)}",
        (dtype, mapping.used),
        float(compute),
        float(received),
        flops=float(folded_shape.elements * window_size) if is_float(dtype) else 0.0,
        source="default" if op.name in _OWN_FUNCTION else "formula",
    )


RULES: dict[str, Rule] = rules_for_names(
    window_reduction_cost,
    "reduce_window reduce_window_max reduce_window_min reduce_window_sum"
    " select_and_gather_add select_and_scatter select_and_scatter_add",
)
