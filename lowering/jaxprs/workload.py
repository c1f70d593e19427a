"""A rough measure of a jaxpr's work, to choose how to run it."""

from __future__ import annotations

import math

from lowering.jaxprs.avals import shape_of, size_of
from lowering.jaxprs.jaxpr import Jaxpr, JaxprEqn, sub_jaxprs


def count_operations(jaxpr: Jaxpr) -> float:
    """Counts arithmetic operations, roughly: products exactly, else one per element."""
    total = 0.0
    for eqn in jaxpr.eqns:
        operations_of_bodies = sum(count_operations(body) for body in sub_jaxprs(eqn))
        total += (
            operations_of_bodies * eqn.params.get("length", 1)
            if operations_of_bodies
            else _count_own_operations(eqn)
        )
    return total


def _count_own_operations(eqn: JaxprEqn) -> float:
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
