"""The inner loops of elementwise vertices, by operation and element type.

From poplibs' estimator tables (poplibs@7eac0f26: popopsCycleEstimators.cpp, OpPerformanceInfo), the
most usual of which are in docs/hardware.md, Elementwise vertices. Types without an entry take that
of the nearest type with one, see `rate_for_dtype`. Functions that the original's library lacks are
in `special`, those of complex numbers in `complex_numbers`.
"""

from __future__ import annotations

from collections.abc import Mapping

from lowering.machine.primitives.rule_helpers import LoopRate, c_type_name

Rates = Mapping[str, LoopRate]

LOOP_OVERHEAD = 4
"""Cycles per pass of loops that are not unrolled: loads, stores, the branch."""


def _rate_per_vector(cycles: int) -> LoopRate:
    return LoopRate(cycles + LOOP_OVERHEAD)


def _rate_per_element(cycles: int) -> LoopRate:
    return LoopRate(cycles + LOOP_OVERHEAD, 1)


def _rates_of_floats(
    single: tuple[int, int], half: tuple[int, int], **further_rates: LoopRate
) -> Rates:
    return {"float": LoopRate(*single), "half": LoopRate(*half), **further_rates}


def _same_rate_of_floats(rate: LoopRate, **further_rates: LoopRate) -> Rates:
    return {"float": rate, "half": rate, **further_rates}


_ROUNDING = _same_rate_of_floats(_rate_per_vector(2))
_INT_7 = dict(int=LoopRate(7, 1), short=LoopRate(3, 4), bool=LoopRate(5, 4), long=LoopRate(9, 1))

UNARY: Mapping[str, Rates] = {
    "abs": _same_rate_of_floats(
        _rate_per_element(1), int=_rate_per_element(2), long=_rate_per_element(10)
    ),
    "asin": _same_rate_of_floats(_rate_per_element(102)),
    "cbrt": {"float": _rate_per_vector(27), "half": _rate_per_vector(17)},
    "ceil": _ROUNDING,
    "clz": {"int": _rate_per_element(1)},
    "cos": _rates_of_floats((2300, 1), (25, 1)),
    "erf": _rates_of_floats((41, 1), (13, 1)),
    "exp": _rates_of_floats((6, 2), (4, 4)),
    "expm1": {"float": _rate_per_element(4), "half": _rate_per_vector(5)},
    "floor": _ROUNDING,
    "inverse": _rates_of_floats((6, 2), (15, 4)),
    "is_finite": _same_rate_of_floats(_rate_per_vector(5)),
    "log": _rates_of_floats((12, 2), (4, 4)),
    "log1p": _same_rate_of_floats(_rate_per_vector(180)),
    "logistic": _rates_of_floats((12, 2), (6, 4)),
    "neg": _rates_of_floats((2, 2), (2, 4), int=_rate_per_element(2), long=_rate_per_element(5)),
    "not": dict(
        int=_rate_per_vector(1),
        bool=_rate_per_element(17),
        short=LoopRate(2, 4),
        long=_rate_per_vector(3),
    ),
    "population_count": {"int": _rate_per_element(1)},
    "relu": _rates_of_floats((3, 2), (3, 4)),
    "round": _ROUNDING,
    "rsqrt": _rates_of_floats((8, 2), (19, 4)),
    "sign": _same_rate_of_floats(_rate_per_vector(5), int=_rate_per_element(5)),
    "sin": _rates_of_floats((2300, 1), (25, 1)),
    "sqrt": _rates_of_floats((10, 2), (23, 4), int=_rate_per_element(110)),
    "square": _rates_of_floats((2, 2), (2, 4), int=_rate_per_vector(1)),
    "tan": _rates_of_floats((5100, 1), (5700, 1)),
    "tanh": _rates_of_floats((12, 2), (4, 4)),
}

_ARITHMETIC = _rates_of_floats((3, 2), (3, 4), int=LoopRate(7, 1), long=LoopRate(11, 1))
_PRODUCT = {**_ARITHMETIC, "long": LoopRate(30, 1)}
_EXTREMUM = _rates_of_floats(
    (3, 2), (4, 4), int=LoopRate(7, 1), bool=LoopRate(5, 4), long=LoopRate(15, 1)
)
# A worker has no comparison of short integers: they are compared as words.
_COMPARE = _rates_of_floats(
    (14, 4),
    (9, 4),
    int=LoopRate(22, 4),
    short=LoopRate(22, 4),
    bool=LoopRate(6, 4),
    long=LoopRate(56, 4),
)
_ORDER = _rates_of_floats(
    (14, 4),
    (9, 4),
    int=LoopRate(26, 4),
    short=LoopRate(26, 4),
    bool=LoopRate(28, 4),
    long=LoopRate(62, 4),
)
_SHIFT: Rates = {"int": LoopRate(7, 1), "long": LoopRate(19, 1)}

BINARY: Mapping[str, Rates] = {
    "add": _ARITHMETIC,
    "add_any": _ARITHMETIC,
    "and": _INT_7,
    "atan2": _rates_of_floats((272, 2), (578, 4)),
    "div": _rates_of_floats((10, 2), (21, 4), int=LoopRate(277, 1), long=LoopRate(130, 1)),
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
    "pow": _rates_of_floats((312, 1), (325, 1)),
    "rem": _rates_of_floats((133, 2), (300, 4), int=LoopRate(292, 1), long=LoopRate(166, 1)),
    "shift_left": _SHIFT,
    "shift_right_arithmetic": _SHIFT,
    "shift_right_logical": {**_SHIFT, "long": LoopRate(6, 1)},
    "sub": _ARITHMETIC,
    "xor": {**_INT_7, "short": LoopRate(5, 2)},
}

_WITH_SCALAR = _rates_of_floats((2, 2), (2, 4), int=LoopRate(6, 1))
_COMPARE_SCALAR = _rates_of_floats(
    (12, 4), (8, 4), int=LoopRate(16, 4), short=LoopRate(16, 4), bool=LoopRate(12, 4)
)
_INT_6: Rates = {"int": LoopRate(6, 1), "short": LoopRate(2, 4), "bool": LoopRate(4, 4)}

_SCALAR: Mapping[str, Rates] = {
    "add": _WITH_SCALAR,
    "add_any": _WITH_SCALAR,
    "and": _INT_6,
    "div": _rates_of_floats((6, 2), (8, 2), int=LoopRate(277, 1)),
    "eq": _COMPARE_SCALAR,
    "ge": _COMPARE_SCALAR,
    "gt": _COMPARE_SCALAR,
    "le": _COMPARE_SCALAR,
    "lt": _COMPARE_SCALAR,
    "max": _rates_of_floats((3, 2), (3, 4), int=LoopRate(6, 1), bool=LoopRate(4, 4)),
    "min": _rates_of_floats((3, 2), (3, 4), int=LoopRate(6, 1), bool=LoopRate(4, 4)),
    "mul": _WITH_SCALAR,
    "ne": _COMPARE_SCALAR,
    "or": _INT_6,
    "rem": _rates_of_floats((93, 2), (225, 4), int=LoopRate(280, 1)),
    "sub": _WITH_SCALAR,
}
BROADCAST: Mapping[str, Rates] = {
    name: {**rates, **_SCALAR.get(name, {})} for name, rates in BINARY.items()
}
"""The rates of binary operations whose second operand is a scalar."""

CASTS: Mapping[tuple[str, str], LoopRate] = {
    ("float", "half"): LoopRate(2, 4),
    ("half", "float"): LoopRate(1, 2),
    ("half", "half"): LoopRate(1, 4),
    ("float", "signed char"): LoopRate(14, 4),
    ("float", "unsigned char"): LoopRate(14, 4),
    ("half", "signed char"): LoopRate(16, 4),
    ("half", "unsigned char"): LoopRate(16, 4),
    ("signed char", "float"): LoopRate(7, 2),
    ("signed char", "half"): LoopRate(13, 4),
    ("unsigned char", "float"): LoopRate(10, 4),
    ("unsigned char", "half"): LoopRate(9, 4),
}
"""Casts in assembly (poplibs: popops/PerformanceEstimation.cpp, castWorkerCycles)."""

TO_LONG = LoopRate(5, 1)
OTHER_CAST = LoopRate(2, 1)
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


def table_name_of(dtype: str) -> str:
    """Returns the tables' name for an element type; complex numbers have that of their parts."""
    if dtype.startswith("float8"):
        return "half"  # there is no arithmetic of eight bits
    if dtype in _DOUBLE or dtype == "complex64":
        return "float"
    name = c_type_name(dtype)
    name = _KINDS.get(name, name)
    return name if name in _NEAREST else "short" if name.endswith("int8") else "int"


def rate_of_cast(source: str, result: str) -> LoopRate:
    """Returns the loop of a cast."""
    if table_name_of(result) == "long":
        return TO_LONG
    if source.startswith("float8") or result.startswith("float8"):
        return OTHER_CAST
    first, second = (_CHARS.get(dtype) or table_name_of(dtype) for dtype in (source, result))
    return CASTS.get((first, second), OTHER_CAST)


def rate_for_dtype(rates: Rates, dtype: str) -> LoopRate:
    """The loop for an element type.

    Types without one take that of the nearest that has one: a worker works on bytes and short
    integers as words, and on the words of floats as integers. 64-bit floats, which no IPU has,
    take twice the loop of floats.
    """
    kind = table_name_of(dtype)
    nearest = next(name for name in (kind, *_NEAREST[kind]) if name in rates)
    loop = rates[nearest]
    return LoopRate(loop.cycles * 2, loop.elements) if dtype in _DOUBLE else loop


def has_own_rates(dtype: str) -> bool:
    """Returns whether the tables have rates for numbers of a type at all."""
    return dtype not in _DOUBLE
