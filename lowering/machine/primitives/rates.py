"""Inner loops of elementwise vertices, by operation and element type.

From poplibs' estimator tables (poplibs@7eac0f26: popopsCycleEstimators.cpp, OpPerformanceInfo), the
most usual of which are in docs/hardware.md, Elementwise vertices. Types without an entry take that
of the nearest one that has one, see `rate`. Functions that the original's library lacks are in
`special`, those of complex numbers in `complexes`.
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


def _both(rate: Rate, **others: Rate) -> Rates:
    return {"float": rate, "half": rate, **others}


_ROUNDING = _both(_vector(2))
_INT_7 = dict(int=Rate(7, 1), short=Rate(3, 4), bool=Rate(5, 4), long=Rate(9, 1))

UNARY: Mapping[str, Rates] = {
    "abs": _both(_each(1), int=_each(2), long=_each(10)),
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
    "neg": _floats((2, 2), (2, 4), int=_each(2), long=_each(5)),
    "not": dict(int=_vector(1), bool=_each(17), short=Rate(2, 4), long=_vector(3)),
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

_ARITHMETIC = _floats((3, 2), (3, 4), int=Rate(7, 1), long=Rate(11, 1))
_PRODUCT = {**_ARITHMETIC, "long": Rate(30, 1)}
_EXTREMUM = _floats((3, 2), (4, 4), int=Rate(7, 1), bool=Rate(5, 4), long=Rate(15, 1))
# A worker has no comparison of short integers: they are compared as words.
_COMPARE = _floats(
    (14, 4), (9, 4), int=Rate(22, 4), short=Rate(22, 4), bool=Rate(6, 4), long=Rate(56, 4)
)
_ORDER = _floats(
    (14, 4), (9, 4), int=Rate(26, 4), short=Rate(26, 4), bool=Rate(28, 4), long=Rate(62, 4)
)
_SHIFT: Rates = {"int": Rate(7, 1), "long": Rate(19, 1)}

BINARY: Mapping[str, Rates] = {
    "add": _ARITHMETIC,
    "add_any": _ARITHMETIC,
    "and": _INT_7,
    "atan2": _floats((272, 2), (578, 4)),
    "div": _floats((10, 2), (21, 4), int=Rate(277, 1), long=Rate(130, 1)),
    "eq": _COMPARE,
    "ge": _ORDER,
    "gt": _COMPARE,
    "le": _ORDER,
    "lt": _COMPARE,
    "max": _EXTREMUM,
    "min": _EXTREMUM,
    "mul": _PRODUCT,
    "ne": _COMPARE,
    "or": _INT_7,
    "pow": _floats((312, 1), (325, 1)),
    "rem": _floats((133, 2), (300, 4), int=Rate(292, 1), long=Rate(166, 1)),
    "shift_left": _SHIFT,
    "shift_right_arithmetic": _SHIFT,
    "shift_right_logical": {**_SHIFT, "long": Rate(6, 1)},
    "sub": _ARITHMETIC,
    "xor": {**_INT_7, "short": Rate(5, 2)},
}

_WITH_SCALAR = _floats((2, 2), (2, 4), int=Rate(6, 1))
_COMPARE_SCALAR = _floats((12, 4), (8, 4), int=Rate(16, 4), short=Rate(16, 4), bool=Rate(12, 4))
_INT_6: Rates = {"int": Rate(6, 1), "short": Rate(2, 4), "bool": Rate(4, 4)}

_SCALAR: Mapping[str, Rates] = {
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
BROADCAST: Mapping[str, Rates] = {
    name: {**rates, **_SCALAR.get(name, {})} for name, rates in BINARY.items()
}
"""The second operand is a scalar."""

CASTS: Mapping[tuple[str, str], Rate] = {
    ("float", "half"): Rate(2, 4),
    ("half", "float"): Rate(1, 2),
    ("half", "half"): Rate(1, 4),
    ("float", "signed char"): Rate(14, 4),
    ("float", "unsigned char"): Rate(14, 4),
    ("half", "signed char"): Rate(16, 4),
    ("half", "unsigned char"): Rate(16, 4),
    ("signed char", "float"): Rate(7, 2),
    ("signed char", "half"): Rate(13, 4),
    ("unsigned char", "float"): Rate(10, 4),
    ("unsigned char", "half"): Rate(9, 4),
}
"""Casts in assembly (poplibs: popops/PerformanceEstimation.cpp, castWorkerCycles)."""

TO_LONG = Rate(5, 1)
OTHER_CAST = Rate(2, 1)
"""Compiled casts, to 64-bit integers and between all others (castWorkerCycles, which calls the
second a guess)."""

_KINDS = {"unsigned int": "int", "unsigned short": "short", "int64": "long", "uint64": "long"}
_NEAREST = {
    "float": ("half", "int", "bool"),
    "half": ("float", "int", "bool"),
    "int": ("float", "bool", "half"),
    "long": ("int", "float", "bool", "half"),
    "short": ("int", "float", "bool", "half"),
    "bool": ("int", "float", "half"),
}
_CHARS = {"int8": "signed char", "uint8": "unsigned char"}
_DOUBLE = ("float64", "complex128")


def kind_of(dtype: str) -> str:
    """The tables' name for an element type; complex numbers have that of their parts."""
    if dtype.startswith("float8"):
        return "half"  # there is no arithmetic of eight bits
    if dtype in _DOUBLE or dtype == "complex64":
        return "float"
    name = c_type(dtype)
    name = _KINDS.get(name, name)
    return name if name in _NEAREST else "short" if name.endswith("int8") else "int"


def cast_rate(source: str, result: str) -> Rate:
    """The loop of a cast."""
    if kind_of(result) == "long":
        return TO_LONG
    if source.startswith("float8") or result.startswith("float8"):
        return OTHER_CAST
    first, second = (_CHARS.get(dtype) or kind_of(dtype) for dtype in (source, result))
    return CASTS.get((first, second), OTHER_CAST)


def rate(rates: Rates, dtype: str) -> Rate:
    """The loop for an element type.

    Types without one take that of the nearest that has one: a worker works on bytes and short
    integers as words, and on the words of floats as integers. 64-bit floats, which no IPU has,
    take twice the loop of floats.
    """
    kind = kind_of(dtype)
    nearest = next(name for name in (kind, *_NEAREST[kind]) if name in rates)
    loop = rates[nearest]
    return Rate(loop.cycles * 2, loop.elements) if dtype in _DOUBLE else loop


def is_known(dtype: str) -> bool:
    """Whether the tables speak of numbers of a type at all."""
    return dtype not in _DOUBLE
