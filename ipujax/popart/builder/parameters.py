"""The kinds of parameters of operators: how values are read into a node's attributes."""

from __future__ import annotations

import dataclasses as dc
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import AttributeProto

from ipujax.popart.debug import context_path
from ipujax.popart.tensor_info import to_data_type


@dc.dataclass(frozen=True, repr=False)
class Kind:
    """A kind of parameter of an operator.

    Attributes:
      name: the name of the type, as a signature shows it.
      read: converts a user's value to a node's; raises `TypeError` for values of other types.
      number: ONNX's number of the attribute's type; None if the value determines it.
    """

    name: str
    read: Callable[[Any], Any]
    number: int | None = None

    def __repr__(self) -> str:
        return self.name


def _read_number(value: Any) -> float:
    if isinstance(value, str):
        raise TypeError("a text is no number")
    return float(value)


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _read_builder(value: object) -> Any:
    if not hasattr(value, "inner_graph"):
        raise TypeError(f"{value!r} is no builder")
    return value


def _read_data_type(value: object) -> int:
    return to_data_type(value).onnx


def _make_list_reader(read: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def read_list(values: Any) -> list[Any]:
        if isinstance(values, str):
            raise TypeError("a text is no list")
        return [read(value) for value in values]

    return read_list


ANY = Kind("Any", lambda value: value)
INT = Kind("int", operator.index, AttributeProto.INT)
FLOAT = Kind("float", _read_number, AttributeProto.FLOAT)
TEXT = Kind("str", _read_text, AttributeProto.STRING)
INTS = Kind("list[int]", _make_list_reader(operator.index), AttributeProto.INTS)
FLOATS = Kind("list[float]", _make_list_reader(_read_number), AttributeProto.FLOATS)
TEXTS = Kind("list[str]", _make_list_reader(_read_text), AttributeProto.STRINGS)
ARRAY = Kind("array", np.asarray, AttributeProto.TENSOR)
GRAPH = Kind("Builder", _read_builder, AttributeProto.GRAPH)
DATA_TYPE = Kind("DataType", _read_data_type, AttributeProto.INT)
CONTEXT = Kind("DebugContext", context_path)
ONE_OR_MORE = Kind(
    "str | list[str]", lambda value: TEXTS.read([value] if isinstance(value, str) else value)
)

BY_NUMBER: Mapping[int, Kind] = {
    kind.number: kind
    for kind in (INT, FLOAT, TEXT, INTS, FLOATS, TEXTS, ARRAY, GRAPH)
    if kind.number is not None
}
"""The kinds by ONNX's numbers of attribute types."""
