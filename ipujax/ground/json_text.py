"""Parses JSON of files within bounds, since a short text can make many objects.

A list of empty lists takes three bytes of a file for each of them, and sixty of the memory; 120 MB
of that, which compression makes a few hundred kB, takes minutes and gigabytes to parse.
"""

from __future__ import annotations

import dataclasses as dc
import json
from typing import NoReturn

from ipujax.ground.value_types import Json


@dc.dataclass(frozen=True)
class Bounds:
    """The most containers and values that a text of JSON may hold.

    Attributes:
      containers: lists and objects; each takes about a hundred bytes when it is parsed.
      values: entries of these, counted by what separates them; each takes about thirty.
    """

    containers: int
    values: int


LARGE = Bounds(containers=2**22, values=2**25)
"""The bounds of the largest files of ipujax: about a gigabyte when it is parsed."""


def parse_bounded_json(text: bytes, bounds: Bounds = LARGE, *, allows_nan: bool = True) -> Json:
    """Parses a text of JSON in UTF-8, if it is within bounds.

    Args:
      text: the bytes.
      bounds: the most that it may hold; brackets and commas inside of texts count as well.
      allows_nan: whether NaN and Infinity, which Python writes, are numbers.

    Raises:
      ValueError: it holds more than that, is no UTF-8 (`UnicodeDecodeError`), no JSON
        (`JSONDecodeError`), or nested too deep.
    """
    containers = text.count(b"[") + text.count(b"{")
    if containers > bounds.containers:
        raise ValueError(f"it holds {containers:,} lists and objects, more than can be")
    values = text.count(b",") + text.count(b":")
    if values > bounds.values:
        raise ValueError(f"it holds {values:,} values, more than can be")
    try:
        return json.loads(
            text.decode("utf-8"), parse_constant=None if allows_nan else _reject_constant
        )
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _reject_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")
