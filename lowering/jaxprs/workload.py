"""A rough measure of a jaxpr's work, to choose how to run it."""

from __future__ import annotations

import math
from collections.abc import Callable

from lowering.jaxprs.avals import shape_of, size_of
from lowering.jaxprs.equations import walk_equations
from lowering.jaxprs.jaxpr import Jaxpr, JaxprEqn, sub_jaxprs

# XLA's CPU client spreads larger products over the cores. Measured by products of 32, 64 and 256
# rows with matrices of 256 x 256 (1.2, 2 and 2 of two cores), one by one and in loops.
SINGLE_CORE_PRODUCT_OPERATIONS = 6e6


def count_operations(jaxpr: Jaxpr) -> float:
    """Counts arithmetic operations, roughly: products exactly, else one per element."""
    return _sum_over_equations(jaxpr, _count_operations_outside_bodies)


def count_equations(jaxpr: Jaxpr) -> int:
    """Counts the equations, those of bodies too: what XLA has to compile."""
    return sum(1 for _ in walk_equations(jaxpr))


def count_single_core_operations(jaxpr: Jaxpr) -> float:
    """Counts the operations that XLA's CPU client computes on one core, however many there are.

    These are convolutions, products of small matrices, and batches of such products.
    """
    return _sum_over_equations(jaxpr, _count_single_core_operations_outside_bodies)


def _sum_over_equations(jaxpr: Jaxpr, count_outside_bodies: Callable[[JaxprEqn], float]) -> float:
    total = 0.0
    for eqn in jaxpr.eqns:
        operations_of_bodies = sum(
            _sum_over_equations(body, count_outside_bodies) for body in sub_jaxprs(eqn)
        )
        total += (
            operations_of_bodies * eqn.params.get("length", 1)
            if operations_of_bodies
            else count_outside_bodies(eqn)
        )
    return total


def _count_operations_outside_bodies(eqn: JaxprEqn) -> float:
    if eqn.primitive.name == "ipu_exported":
        return eqn.params["kernel"].operations
    size = sum(float(size_of(var.aval)) for var in eqn.outvars)
    if eqn.primitive.name == "dot_general":
        contracted: tuple[int, ...] = eqn.params["dimension_numbers"][0][0]
        shape = shape_of(eqn.invars[0].aval)
        return 2.0 * size * math.prod(shape[axis] for axis in contracted)
    if eqn.primitive.name == "conv_general_dilated":
        filters = shape_of(eqn.invars[1].aval)
        feature_axis: int = eqn.params["dimension_numbers"].rhs_spec[0]
        features = filters[feature_axis]
        return 2.0 * size * math.prod(filters) / max(features, 1)
    return size


def _count_single_core_operations_outside_bodies(eqn: JaxprEqn) -> float:
    if eqn.primitive.name not in ("conv_general_dilated", "dot_general"):
        return 0.0
    operations = _count_operations_outside_bodies(eqn)
    if eqn.primitive.name == "conv_general_dilated":
        return operations
    batch_axes: tuple[int, ...] = eqn.params["dimension_numbers"][1][0]
    shape = shape_of(eqn.invars[0].aval)
    products = math.prod(shape[axis] for axis in batch_axes)
    is_small = operations < SINGLE_CORE_PRODUCT_OPERATIONS * products
    return operations if is_small else 0.0
