"""Inner loops of elementwise vertices, by operation and element type.

From poplibs' estimator tables (poplibs@7eac0f26: popopsCycleEstimators.cpp, OpPerformanceInfo), the
most usual of which are in docs/hardware.md, Elementwise vertices. Types without an entry take that
of the nearest one that has one, see `rate`. Functions that the original's library lacks are chains
of those that it has, as XLA's own expansions (tensorflow: compiler/xla/client/lib/math.cc) write
them.
"""

from __future__ import annotations

from collections.abc import Mapping

from lowering.machine.primitives.vertices import Rate, c_type

Rates = Mapping[str, Rate]

LOOP_OVERHEAD = 4
"""Cycles per pass of loops that are not unrolled: loads, stores, the branch."""


def _vector(cycles: int) -> Rate:
    return Rate(cycles + LOOP_OVERHEAD)


def _each(cycles: int) -> Rate:
    return Rate(cycles + LOOP_OVERHEAD, 1)


def _floats(single: tuple[int, int], half: tuple[int, int], **others: Rate) -> Rates:
    return {"float": Rate(*single), "half": Rate(*half), **others}


def _both(found: Rate, **others: Rate) -> Rates:
    return {"float": found, "half": found, **others}


_ROUNDING = _both(_vector(2))
_INT_7: Rates = {"int": Rate(7, 1), "short": Rate(3, 4), "bool": Rate(5, 4)}

UNARY: Mapping[str, Rates] = {
    "abs": _both(_each(1), int=_each(2)),
    "asin": _both(_each(102)),
    "cbrt": {"float": _vector(27), "half": _vector(17)},
    "ceil": _ROUNDING,
    "clz": {"int": _each(1)},
    "cos": _floats((2300, 1), (25, 1)),
    "erf": _floats((41, 1), (13, 1)),
    "exp": _floats((6, 2), (4, 4)),
    "expm1": {"float": _each(4), "half": _vector(5)},
    "floor": _ROUNDING,
    "inverse": _floats((6, 2), (15, 4)),
    "is_finite": _both(_vector(5)),
    "log": _floats((12, 2), (4, 4)),
    "log1p": _both(_vector(180)),
    "logistic": _floats((12, 2), (6, 4)),
    "neg": _floats((2, 2), (2, 4), int=_each(2)),
    "not": {"int": _vector(1), "bool": _each(17)},
    "population_count": {"int": _each(1)},
    "relu": _floats((3, 2), (3, 4)),
    "round": _ROUNDING,
    "rsqrt": _floats((8, 2), (19, 4)),
    "sign": _both(_vector(5), int=_each(5)),
    "sin": _floats((2300, 1), (25, 1)),
    "sqrt": _floats((10, 2), (23, 4), int=_each(110)),
    "square": _floats((2, 2), (2, 4), int=_vector(1)),
    "tan": _floats((5100, 1), (5700, 1)),
    "tanh": _floats((12, 2), (4, 4)),
}

_ARITHMETIC = _floats((3, 2), (3, 4), int=Rate(7, 1))
_EXTREMUM = _floats((3, 2), (4, 4), int=Rate(7, 1), bool=Rate(5, 4))
# A worker has no comparison of short integers: they are compared as words.
_COMPARE = _floats((14, 4), (9, 4), int=Rate(22, 4), short=Rate(22, 4), bool=Rate(6, 4))
_ORDER = _floats((14, 4), (9, 4), int=Rate(26, 4), short=Rate(26, 4), bool=Rate(28, 4))
_SHIFT: Rates = {"int": Rate(7, 1)}

BINARY: Mapping[str, Rates] = {
    "add": _ARITHMETIC,
    "add_any": _ARITHMETIC,
    "and": _INT_7,
    "atan2": _floats((272, 2), (578, 4)),
    "div": _floats((10, 2), (21, 4), int=Rate(277, 1)),
    "eq": _COMPARE,
    "ge": _ORDER,
    "gt": _COMPARE,
    "le": _ORDER,
    "lt": _COMPARE,
    "max": _EXTREMUM,
    "min": _EXTREMUM,
    "mul": _ARITHMETIC,
    "ne": _COMPARE,
    "or": _INT_7,
    "pow": _floats((312, 1), (325, 1)),
    "rem": _floats((133, 2), (300, 4), int=Rate(292, 1)),
    "shift_left": _SHIFT,
    "shift_right_arithmetic": _SHIFT,
    "shift_right_logical": _SHIFT,
    "sub": _ARITHMETIC,
    "xor": {**_INT_7, "short": Rate(5, 2)},
}

_WITH_SCALAR = _floats((2, 2), (2, 4), int=Rate(6, 1))
_COMPARE_SCALAR = _floats((12, 4), (8, 4), int=Rate(16, 4), short=Rate(16, 4), bool=Rate(12, 4))
_INT_6: Rates = {"int": Rate(6, 1), "short": Rate(2, 4), "bool": Rate(4, 4)}

BROADCAST: Mapping[str, Rates] = {
    **BINARY,
    "add": _WITH_SCALAR,
    "add_any": _WITH_SCALAR,
    "and": _INT_6,
    "div": _floats((6, 2), (8, 2), int=Rate(277, 1)),
    "eq": _COMPARE_SCALAR,
    "ge": _COMPARE_SCALAR,
    "gt": _COMPARE_SCALAR,
    "le": _COMPARE_SCALAR,
    "lt": _COMPARE_SCALAR,
    "max": _floats((3, 2), (3, 4), int=Rate(6, 1), bool=Rate(4, 4)),
    "min": _floats((3, 2), (3, 4), int=Rate(6, 1), bool=Rate(4, 4)),
    "mul": _WITH_SCALAR,
    "ne": _COMPARE_SCALAR,
    "or": _INT_6,
    "rem": _floats((93, 2), (225, 4), int=Rate(280, 1)),
    "sub": _WITH_SCALAR,
}
"""The second operand is a scalar."""

_LANCZOS = ("div", "add", "add") * 8  # eight terms of the series
_CHEBYSHEV = ("mul", "sub", "add") * 25  # the longer of the two expansions, both computed
_SERIES = ("mul", "div", "add", "div") * 32  # iterations until float32 stands still; assumed

COMPOSED: Mapping[str, tuple[str, ...]] = {
    "acos": ("mul", "sub", "sqrt", "add", "atan2", "mul"),
    "acosh": ("add", "sub", "mul", "sqrt", "add", "log"),
    "asinh": ("abs", "mul", "add", "sqrt", "add", "div", "add", "log1p", "sign", "mul"),
    "atan": ("atan2",),
    "atanh": ("log1p", "neg", "log1p", "sub", "mul"),
    "clamp": ("max", "min"),
    "conj": ("neg",),
    "cosh": ("exp", "inverse", "add", "mul"),
    "erf_inv": ("neg", "mul", "log1p", "sqrt", "lt", *("mul", "add") * 9, "mul"),
    "erfc": ("erf", "sub"),
    "exp2": ("mul", "exp"),
    "sinh": ("exp", "inverse", "sub", "mul"),
}
"""Chains of operations of the two tables."""

ASSUMED: Mapping[str, tuple[str, ...]] = {
    "bessel_i0e": ("abs", "exp", *_CHEBYSHEV),
    "bessel_i1e": ("abs", "exp", *_CHEBYSHEV),
    "digamma": (*_LANCZOS, "log", "div", "tan", "div"),
    "eq_to": ("xor", "shift_right_arithmetic", "eq"),
    "igamma": ("log", "exp", *_SERIES),
    "igamma_grad_a": ("log", "exp", *_SERIES * 2),
    "igammac": ("log", "exp", *_SERIES),
    "le_to": ("xor", "shift_right_arithmetic", "le"),
    "lgamma": (*_LANCZOS, "log", "log1p", "log", "mul", "sub", "add", "sin"),
    "lt_to": ("xor", "shift_right_arithmetic", "lt"),
    "mulhi": ("mul", "shift_right_logical") * 4,
    "nextafter": ("eq", "and", "add", "or", "ne"),
    "polygamma": ("exp", *_SERIES),
    "reduce_precision": ("shift_right_logical", "and", "add", "and"),
    "regularized_incomplete_beta": ("log", "log1p", "exp", *_SERIES),
    "zeta": ("pow", *_SERIES),
}
"""Chains of which the number of terms is assumed: their costs are defaults."""

CASTS: Mapping[tuple[str, str], Rate] = {
    ("float", "half"): Rate(2, 4),
    ("half", "float"): Rate(1, 2),
}
"""Casts whose loops are known; any other takes `OTHER_CAST`."""

OTHER_CAST = Rate(6, 1)

_KINDS = {"unsigned int": "int", "unsigned short": "short"}
_NEAREST = {
    "float": ("half", "int", "bool"),
    "half": ("float", "int", "bool"),
    "int": ("float", "bool", "half"),
    "short": ("int", "float", "bool"),
    "bool": ("int", "float", "half"),
}
_WIDE = {"float64": "float", "complex64": "float", "complex128": "float"}


def kind_of(dtype: str) -> str:
    """The tables' name for an element type."""
    name = c_type(dtype)
    name = _WIDE.get(name, _KINDS.get(name, name))
    return name if name in _NEAREST else "short" if name.endswith("8") else "int"


def rate(rates: Rates, dtype: str) -> tuple[Rate, bool]:
    """The loop for an element type, and whether the tables have it.

    Types of eight and sixteen bytes are worked on in software; they take as many turns as they have
    32-bit words.
    """
    kind = kind_of(dtype)
    known = kind in rates
    nearest = next(name for name in (kind, *_NEAREST[kind]) if name in rates)
    found = rates[nearest]
    words = {"float64": 2, "int64": 2, "uint64": 2, "complex64": 2, "complex128": 4}.get(dtype, 1)
    return Rate(found.cycles * words, found.elements), known and words == 1
