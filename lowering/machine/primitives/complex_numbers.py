"""Arithmetic of complex numbers in terms of their parts, as XLA's elemental emitters write it.

Counts per number, of the operations of `rates`, on floats (xla/service/elemental_ir_emitter.cc and
its successors in xla/codegen; chlo's expansions for inverse functions). Quotients lack XLA's
treatment of infinite parts.
"""

from __future__ import annotations

from collections.abc import Mapping

from lowering.machine.primitives.special import Counts, add_counts

_ABS = dict(abs=2, max=1, min=1, div=1, mul=2, add=1, sqrt=1, eq=1, select_n=1)
_MUL: Counts = {"mul": 4, "add": 1, "sub": 1}
_DIV: Counts = {"mul": 6, "add": 2, "sub": 1, "div": 2}
_EXP: Counts = {"exp": 1, "cos": 1, "sin": 1, "mul": 2}
_LOG = add_counts(_ABS, {"log": 1, "atan2": 1})
_POLAR = add_counts(_ABS, {"atan2": 1, "mul": 3, "cos": 1, "sin": 1})  # of a power: with its root
_SQRT = add_counts(
    _ABS, {"add": 1, "mul": 2, "sqrt": 1, "div": 2, "abs": 1, "ge": 1, "select_n": 2}
)
# sin(a + ib) = sin a cosh b + i cos a sinh b, and its relatives.
_SIN: Counts = {"sin": 1, "cos": 1, "exp": 1, "inverse": 1, "add": 1, "sub": 1, "mul": 4}
_TAN = dict(sin=1, cos=1, exp=1, inverse=1, add=3, sub=1, mul=4, div=2, gt=1, select_n=2)
# Hull, Fairgrieve and Tang: two moduli, and cases that keep digits.
_ASIN = add_counts(
    add_counts(_ABS, times=2),
    {"add": 8, "sub": 4, "mul": 10, "div": 5, "sqrt": 3, "log": 1, "log1p": 1, "atan2": 1},
    {"abs": 2, "lt": 6, "select_n": 12, "neg": 2},
)
_ATAN = dict(add=3, sub=2, mul=6, div=1, log1p=1, atan2=1, abs=2, lt=4, select_n=8, neg=1)

COMPLEX: Mapping[str, Counts] = {
    "abs": _ABS,
    "acos": _ASIN,
    "acosh": _ASIN,
    "add": {"add": 2},
    "add_any": {"add": 2},
    "asin": _ASIN,
    "asinh": _ASIN,
    "atan": _ATAN,
    "atanh": _ATAN,
    "cbrt": add_counts(_POLAR, {"cbrt": 1}),
    "conj": {"neg": 1},
    "cos": _SIN,
    "cosh": _SIN,
    "div": _DIV,
    "eq": {"eq": 2, "and": 1},
    "exp": _EXP,
    "exp2": add_counts(_EXP, {"mul": 2}),
    "expm1": add_counts(_EXP, {"expm1": 1, "sub": 1, "add": 1, "mul": 2}),
    "inverse": {"square": 2, "add": 1, "div": 2, "neg": 1},
    "is_finite": {"is_finite": 2, "and": 1},
    "log": _LOG,
    "log1p": add_counts(_LOG, {"add": 1}),
    "logistic": add_counts(_EXP, _DIV, {"neg": 2, "add": 1}),
    "mul": _MUL,
    "ne": {"ne": 2, "or": 1},
    "neg": {"neg": 2},
    "pow": add_counts(_LOG, _EXP, _MUL),
    "rsqrt": add_counts(_POLAR, {"rsqrt": 1}),
    "select_n": {"select_n": 2},
    "sign": add_counts(_ABS, {"div": 2, "eq": 1, "select_n": 2}),
    "sin": _SIN,
    "sinh": _SIN,
    "sqrt": _SQRT,
    "square": _MUL,
    "sub": {"sub": 2},
    "tan": _TAN,
    "tanh": _TAN,
}
"""The counts of float operations by primitive; a number has two floats."""
