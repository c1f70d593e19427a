"""What the parameters of operators take, and what a node then holds of it."""

from __future__ import annotations

import dataclasses as dc
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import AttributeProto

from ipujax.popart.debug import path_of
from ipujax.popart.tensor_info import data_type_of


@dc.dataclass(frozen=True, repr=False)
class Kind:
    """What a parameter takes.

    Attributes:
      name: of the type, as a signature shows it.
      read: gives what a node holds for what a user gives; raises `TypeError` for something else.
      number: of the attribute's type, as ONNX has it; None where its value tells.
    """

    name: str
    read: Callable[[Any], Any]
    number: int | None = None

    def __repr__(self) -> str:
        return self.name


def _number(value: Any) -> float:
    if isinstance(value, str):
        raise TypeError("a text is no number")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _builder(value: Any) -> Any:
    if not hasattr(value, "inner_graph"):
        raise TypeError(f"{value!r} is no builder")
    return value


def _data_type(value: Any) -> int:
    return data_type_of(value).onnx


def _each(read: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def read_all(values: Any) -> list[Any]:
        if isinstance(values, str):
            raise TypeError("a text is no list")
        return [read(value) for value in values]

    return read_all


ANY = Kind("Any", lambda value: value)
INT = Kind("int", operator.index, AttributeProto.INT)
FLOAT = Kind("float", _number, AttributeProto.FLOAT)
TEXT = Kind("str", _text, AttributeProto.STRING)
INTS = Kind("list[int]", _each(operator.index), AttributeProto.INTS)
FLOATS = Kind("list[float]", _each(_number), AttributeProto.FLOATS)
TEXTS = Kind("list[str]", _each(_text), AttributeProto.STRINGS)
ARRAY = Kind("array", np.asarray, AttributeProto.TENSOR)
GRAPH = Kind("Builder", _builder, AttributeProto.GRAPH)
DATA_TYPE = Kind("DataType", _data_type, AttributeProto.INT)
CONTEXT = Kind("DebugContext", path_of)
ONE_OR_MORE = Kind(
    "str | list[str]", lambda value: TEXTS.read([value] if isinstance(value, str) else value)
)

BY_NUMBER: Mapping[int, Kind] = {
    kind.number: kind
    for kind in (INT, FLOAT, TEXT, INTS, FLOATS, TEXTS, ARRAY, GRAPH)
    if kind.number is not None
}
"""By the numbers that ONNX gives to types of attributes."""
