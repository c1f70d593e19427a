"""`popops.expr`: expressions of elementwise operations, computed in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from ipujax.poplar.element_types import Type, require_type
from ipujax.poplar.exceptions import check
from ipujax.poplar.popops_elementwise import OPERATIONS

_Arrays = Sequence[Any]


class Expr:
    """An expression: a function of the tensors that `popops.map` is given.

    Attributes:
      evaluate: the tensors' arrays -> the array.
    """

    def __init__(self, evaluate: Callable[[_Arrays], Any]):
        self.evaluate = evaluate

    def __add__(self, other: Any) -> Expr:
        return apply("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return apply("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return apply("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return apply("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return apply("mul", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return apply("mul", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return apply("div", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return apply("div", other, self)

    def __mod__(self, other: Any) -> Expr:
        return apply("rem", self, other)

    def __neg__(self) -> Expr:
        return apply("neg", self)

    def __invert__(self) -> Expr:
        return apply("bitwiseNot", self)

    def __and__(self, other: Any) -> Expr:
        return apply("bitwiseAnd", self, other)

    def __or__(self, other: Any) -> Expr:
        return apply("bitwiseOr", self, other)

    def __xor__(self, other: Any) -> Expr:
        return apply("bitwiseXor", self, other)

    def __lshift__(self, other: Any) -> Expr:
        return apply("shiftLeft", self, other)

    def __rshift__(self, other: Any) -> Expr:
        return apply("shiftRight", self, other)

    def __lt__(self, other: Any) -> Expr:
        return apply("lt", self, other)

    def __le__(self, other: Any) -> Expr:
        return apply("lteq", self, other)

    def __gt__(self, other: Any) -> Expr:
        return apply("gt", self, other)

    def __ge__(self, other: Any) -> Expr:
        return apply("gteq", self, other)


def apply(name: str, *operands: Any) -> Expr:
    """Returns the expression of PopLibs' operation of a name, of expressions and numbers."""
    parts = [operand if isinstance(operand, Expr) else Const(operand) for operand in operands]
    return Expr(lambda arrays: OPERATIONS[name](*(part.evaluate(arrays) for part in parts)))


def PlaceHolder(index: int) -> Expr:
    """Returns the expression of the index-th tensor that `popops.map` is given, from 1 on."""
    position = check.require_integer(index, "index", at_least=1)

    def evaluate(arrays: _Arrays) -> Any:
        if position > len(arrays):
            raise check.value_error(
                f"the expression reads _{position}, and there are {len(arrays)} tensors",
                "give popops.map as many tensors",
            )
        return arrays[position - 1]

    return Expr(evaluate)


def Const(value: Any) -> Expr:
    """Returns the expression of a number."""
    number = check.require_instance(value, (int, float, bool), "a constant", "a number")
    return Expr(lambda _: number)


def Cast(operand: Expr, type: Type) -> Expr:
    """Returns an expression cast to another type."""
    dtype = require_type(type, "type").dtype
    return Expr(lambda arrays: jnp.asarray(operand.evaluate(arrays)).astype(dtype))


_1, _2, _3, _4, _5, _6, _7, _8, _9, _10 = map(PlaceHolder, range(1, 11))

_CLASS_NAMES = {
    "div": "Divide", "eq": "Equal", "neq": "NotEqual", "gteq": "Gte", "lteq": "Lte",
    "logicalNot": "Not", "logicalAnd": "And", "logicalOr": "Or", "shiftLeft": "Shl",
    "shiftRight": "Shr", "shiftRightSignExtend": "ShrSE",
}  # fmt: skip
"""The names of PopLibs' classes that are not the operations' names with a capital."""


def _make_constructor(name: str) -> Callable[..., Expr]:
    def make(*operands: Any) -> Expr:
        return apply(name, *operands)

    make.__name__ = make.__qualname__ = _CLASS_NAMES.get(name, name[0].upper() + name[1:])
    make.__doc__ = f"Returns the expression of `popops.{name}`."
    return make


CONSTRUCTORS = {make.__name__: make for make in map(_make_constructor, OPERATIONS)}
"""The classes of PopLibs' operations, by name: `Add`, `Exp`, `Select`, ..."""


def __getattr__(name: str) -> Any:
    if name in CONSTRUCTORS:
        return CONSTRUCTORS[name]
    raise AttributeError(f"popops.expr has no {name!r}")


def __dir__() -> list[str]:
    placeholders = [f"_{position}" for position in range(1, 11)]
    return ["Cast", "Const", "Expr", "PlaceHolder", *CONSTRUCTORS, *placeholders]
