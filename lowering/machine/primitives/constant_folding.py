"""Arithmetic with constants, as XLA's algebraic simplifier leaves it.

The original compiled programs that XLA had simplified (tensorflow: compiler/xla/service/
algebraic_simplifier.cc): a division by a constant is a product with its inverse, a power with a
common exponent its own operation, and an unsigned division by a power of two a shift. That powers
of any whole number are products is ours.
"""

from __future__ import annotations

import dataclasses as dc
import math

from lowering.machine.cost import Operation, Shape
from lowering.machine.primitives.rule_helpers import is_float

_POWERS = {-1.0: "inverse", -0.5: "rsqrt", 0.5: "sqrt", 2.0: "square"}
_UNSIGNED = {"div": "shift_right_logical", "rem": "and"}


def simplify_constant_operand(op: Operation) -> Operation:
    """Simplifies an operation whose second operand is a constant; returns others as they are."""
    constant = op.literals[1] if len(op.literals) == 2 else None
    if constant is None or not math.isfinite(constant):
        return op
    first, dtype = op.operands[0], op.operands[0].dtype
    scalar = dc.replace(op, operands=(first, Shape((), op.operands[1].dtype)), literals=())
    if op.name == "pow":
        return _simplify_power(op, first, constant) or scalar
    if op.name == "div" and is_float(dtype):
        return dc.replace(scalar, name="mul")
    if op.name in _UNSIGNED and dtype.startswith("uint") and _is_power_of_two(constant):
        return dc.replace(scalar, name=_UNSIGNED[op.name])
    return scalar


def _simplify_power(op: Operation, base: Shape, exponent: float) -> Operation | None:
    if exponent in _POWERS:
        return Operation(_POWERS[exponent], (base,), op.results)
    if exponent.is_integer():
        return Operation("integer_pow", (base,), op.results, (("y", int(exponent)),))
    return None


def _is_power_of_two(number: float) -> bool:
    return number > 0 and math.frexp(number)[0] == 0.5 and number.is_integer()
