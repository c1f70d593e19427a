"""How much work a jaxpr is, roughly: enough to choose how to run it."""

from __future__ import annotations

import math
from typing import Any

from lowering.avals import shape_of, size_of
from lowering.equations import walk
from lowering.jaxpr import Jaxpr, JaxprEqn, sub_jaxprs


def count_operations(jaxpr: Jaxpr) -> float:
    """A rough count of arithmetic operations: products exactly, anything else one per element."""
    total = 0.0
    for eqn in jaxpr.eqns:
        inner = sum(count_operations(body) for body in sub_jaxprs(eqn))
        total += inner * eqn.params.get("length", 1) if inner else _own_operations(eqn)
    return total


def _own_operations(eqn: JaxprEqn) -> float:
    if eqn.primitive.name == "ipu_exported":
        return eqn.params["kernel"].operations
    size = sum(float(size_of(var.aval)) for var in eqn.outvars)
    if eqn.primitive.name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        shape = shape_of(eqn.invars[0].aval)
        return 2.0 * size * math.prod(shape[axis] for axis in contracted)
    if eqn.primitive.name == "conv_general_dilated":
        filters = shape_of(eqn.invars[1].aval)
        features = filters[eqn.params["dimension_numbers"].rhs_spec[0]]
        return 2.0 * size * math.prod(filters) / max(features, 1)
    return size


def has_slow_convolution(jaxpr: Jaxpr) -> bool:
    """Whether a convolution other than the plain NHWC/HWIO forward one occurs anywhere inside."""
    return any(map(_is_slow, walk(jaxpr)))


def _is_slow(eqn: JaxprEqn) -> bool:
    if eqn.primitive.name == "ipu_exported":
        return eqn.params["kernel"].has_slow_convolution
    return eqn.primitive.name == "conv_general_dilated" and not _is_plain_convolution(eqn.params)


def _is_plain_convolution(params: dict[str, Any]) -> bool:
    numbers = params["dimension_numbers"]
    rank = len(numbers.lhs_spec)
    image = (0, rank - 1, *range(1, rank - 1))  # batch, features, space: channels last
    filters = (rank - 1, rank - 2, *range(rank - 2))  # out, in, space: HWIO
    canonical = (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec) == (image, filters, image)
    return canonical and set(params["lhs_dilation"]) <= {1} and params["batch_group_count"] == 1
