"""JSON of files: bounded before it is parsed, since a short text can make many objects.

A list of empty lists takes three bytes of a file for each of them, and sixty of the memory; 120 MB
of that, which compression makes a few hundred kB, takes minutes and gigabytes to parse.
"""

from __future__ import annotations

import dataclasses as dc
import json
from typing import Any, NoReturn


@dc.dataclass(frozen=True)
class Bounds:
    """How much a text of JSON may hold.

    Attributes:
      containers: lists and objects; each takes about a hundred bytes when it is parsed.
      values: entries of these, counted by what separates them; each takes about thirty.
    """

    containers: int
    values: int


LARGE = Bounds(containers=2**22, values=2**25)
"""What anything of ours may hold: about a gigabyte when it is parsed."""


def parse(text: bytes, bounds: Bounds = LARGE, *, takes_nan: bool = True) -> Any:
    """The value that a text of JSON in UTF-8 stands for.

    Args:
      text: the bytes.
      bounds: how much it may hold; brackets and commas inside of texts count as well.
      takes_nan: whether NaN and Infinity, which Python writes, are numbers.

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
        return json.loads(text.decode("utf-8"), parse_constant=None if takes_nan else _refuse)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")
