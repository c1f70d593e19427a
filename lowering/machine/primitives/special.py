"""Functions that poplibs lacks, as the arithmetic that XLA and JAX expand them into.

Counts per element, of the operations of `rates`. Polynomials and series of fixed length are counted
in the expansions: those of XLA (chlo's, once tensorflow: compiler/xla/client/lib/math.cc) and, for
incomplete gamma and beta functions and `bessel_i0e`, JAX's own (jax/_src/lax/special.py). Loops
that run until all elements stand still are taken to need as many turns as the slowest of 100,000
pairs from 0.1 to 10, spread evenly by their logarithms, needs in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Counts: TypeAlias = Mapping[str, int]

SERIES_TURNS = 21
FRACTION_TURNS = 30
LENTZ_TURNS = 27
"""Counted for the series and the continued fraction of the incomplete gamma function, and for the
continued fraction of the incomplete beta function; without the test whether all are done."""


def add_counts(*parts: Counts, times: int = 1) -> Counts:
    """Adds the counts of parts, so many times over."""
    counts: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            counts[name] = counts.get(name, 0) + count * times
    return counts


# Lanczos' approximation with eight terms, in logarithms, reflected below a half.
_LANCZOS_TERMS = 8
_LGAMMA = add_counts(
    add_counts({"add": 2, "div": 1}, times=_LANCZOS_TERMS),
    {"neg": 1, "sub": 1, "lt": 1, "select_n": 1},  # the argument
    {"add": 4, "div": 2, "log1p": 1, "sub": 1, "mul": 1, "log": 1},
    {"abs": 2, "floor": 1, "sub": 4, "gt": 1, "mul": 1, "sin": 1, "log": 1},  # the reflection
    {"is_finite": 1, "neg": 1, "eq": 1, "select_n": 4},
)
_DIGAMMA = add_counts(
    add_counts({"add": 2, "mul": 1, "div": 2, "sub": 1}, times=_LANCZOS_TERMS),
    {"neg": 1, "sub": 1, "lt": 1, "select_n": 1},
    {"add": 3, "div": 3, "log1p": 1, "sub": 1},
    {"add": 2, "floor": 2, "abs": 1, "mul": 2, "cos": 1, "sin": 1, "div": 1, "sub": 1},
    {"le": 1, "eq": 1, "and": 1, "select_n": 2},
)
# Euler and Maclaurin: eleven powers, and twelve terms of the correction.
_ZETA = add_counts(
    {"pow": 11, "add": 20, "neg": 1, "div": 3, "mul": 5, "sub": 1, "inverse": 1},
    add_counts({"add": 3, "mul": 3}, times=12),
    {"le": 3, "eq": 2, "lt": 3, "floor": 2, "ne": 1, "and": 2, "select_n": 6},
)
# Chebyshev series of Cephes: 18 and 7 terms (17 and 7), both computed.
_I0E = dict(sub=29, mul=28, add=25, div=2, abs=1, sqrt=1, le=1, select_n=1)
_I1E = dict(sub=28, mul=28, add=24, div=2, abs=1, sqrt=1, le=1, lt=1, neg=1, select_n=2)
# Giles' two polynomials of nine coefficients, chosen one by one.
_ERF_INV = dict(neg=2, mul=11, log1p=1, lt=1, sub=2, sqrt=1, add=8, abs=1, eq=1, select_n=11)

_IGAMMA_ONCE = add_counts(
    _LGAMMA,
    {"log": 1, "exp": 1, "mul": 4, "sub": 4, "add": 3, "div": 2},
    {"eq": 4, "lt": 3, "ge": 1, "gt": 1, "ne": 2, "or": 7, "and": 3, "not": 2, "select_n": 5},
)
_SERIES: Counts = {"add": 2, "div": 2, "mul": 1, "gt": 1, "and": 1, "select_n": 4}
_FRACTION = add_counts(dict(add=2, mul=9, sub=3, div=2, abs=2, ne=1, gt=2, select_n=14), {"and": 1})
_IGAMMA = add_counts(
    _IGAMMA_ONCE,
    add_counts(_SERIES, times=SERIES_TURNS),
    add_counts(_FRACTION, times=FRACTION_TURNS),
)
# The additions for the derivative by the first argument, to each term and once.
_SERIES_BY_A: Counts = {"mul": 3, "div": 2, "sub": 1, "add": 1, "abs": 1, "select_n": 2}
_FRACTION_BY_A: Counts = {"mul": 11, "sub": 6, "add": 2, "div": 1, "abs": 1, "select_n": 11}
_IGAMMA_GRAD_A = add_counts(
    _IGAMMA,
    add_counts(_SERIES_BY_A, times=SERIES_TURNS),
    add_counts(_FRACTION_BY_A, times=FRACTION_TURNS),
    add_counts(_DIGAMMA, {"log": 1, "sub": 1, "mul": 2, "add": 1}, times=2),
)
_LENTZ = dict(add=9, mul=10, sub=3, neg=1, div=3, inverse=1, abs=3, lt=2, ge=1, select_n=5)
_BETAINC = add_counts(
    add_counts(_LGAMMA, times=3),
    {"log": 1, "log1p": 2, "exp": 2, "mul": 6, "sub": 8, "add": 4, "div": 3},
    {"eq": 8, "ne": 3, "lt": 6, "gt": 1, "or": 12, "and": 4, "not": 2, "select_n": 12},
    add_counts(_LENTZ, times=LENTZ_TURNS),
)

COMPOSED: Mapping[str, Counts] = {
    "acos": {"mul": 2, "sub": 1, "sqrt": 1, "add": 1, "atan2": 1},
    "acosh": {"add": 2, "sub": 1, "mul": 1, "sqrt": 1, "log": 1},
    "asinh": {"abs": 1, "mul": 2, "add": 3, "sqrt": 1, "div": 1, "log1p": 1, "sign": 1},
    "atan": {"atan2": 1},
    "atanh": {"log1p": 2, "neg": 1, "sub": 1, "mul": 1},
    "clamp": {"max": 1, "min": 1},
    "conj": {"neg": 1},
    "cosh": {"exp": 1, "inverse": 1, "add": 1, "mul": 1},
    "erfc": {"erf": 1, "sub": 1},
    "exp2": {"mul": 1, "exp": 1},
    "nextafter": {"eq": 3, "ne": 4, "and": 4, "or": 2, "add": 2, "select_n": 5},
    "reduce_precision": {
        **{"shift_right_logical": 1, "and": 3, "add": 2, "or": 1},
        **{"gt": 2, "ne": 1, "select_n": 3},
    },
    "sinh": {"exp": 1, "inverse": 1, "sub": 1, "mul": 1},
}
"""Short functions, computed in the type of their operands."""

_TOTAL_ORDER: Counts = {"lt": 2, "sub": 2, "select_n": 2}  # of the words of floats, as integers

INTEGER: Mapping[str, Counts] = {
    "eq_to": add_counts(_TOTAL_ORDER, {"eq": 1}),
    "le_to": add_counts(_TOTAL_ORDER, {"le": 1}),
    "lt_to": add_counts(_TOTAL_ORDER, {"lt": 1}),
    "mulhi": {"mul": 4, "shift_right_logical": 6, "and": 4, "add": 5},
}
"""On the words of numbers: comparisons in total order, and products of halves of words."""

SPECIAL: Mapping[str, Counts] = {
    "bessel_i0e": _I0E,
    "bessel_i1e": _I1E,
    "digamma": _DIGAMMA,
    "erf_inv": _ERF_INV,
    "igamma": _IGAMMA,
    "igamma_grad_a": _IGAMMA_GRAD_A,
    "igammac": _IGAMMA,
    "lgamma": _LGAMMA,
    "polygamma": add_counts(
        _LGAMMA, _ZETA, _DIGAMMA, {"exp": 1, "mul": 2, "add": 2, "eq": 3, "rem": 1, "select_n": 4}
    ),
    "regularized_incomplete_beta": _BETAINC,
    "zeta": _ZETA,
}
"""Long functions, computed in float32 if their operands are halves."""
