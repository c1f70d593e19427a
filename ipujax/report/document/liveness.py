"""Liveness: what is there at which step, for each IPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ipujax.report.document.runs import Repeats, from_repeats, repeats
from ipujax.report.document.strings import Strings
from lowering import machine

_ALWAYS = -1
_NO_VALUE = -1


def encode(liveness: Sequence[machine.Liveness], strings: Strings) -> list[dict[str, Any]]:
    """The section: an object for each IPU."""
    return [_one(held, strings) for held in liveness]


def _one(held: machine.Liveness, strings: Strings) -> dict[str, Any]:
    mappings = _Mappings()
    tensors = held.tensors
    number = strings.number
    return {
        "worst": held.worst,
        "steps": {
            "name": list(map(number, held.names)),
            "origin": list(map(number, held.origins)),
            "bytes": held.bytes.tolist(),
            "temporary": held.temporary_bytes.tolist(),
        },
        "tensors": {
            "name": [number(tensor.name) for tensor in tensors],
            "category": [number(tensor.category) for tensor in tensors],
            "operation": [number(tensor.operation) for tensor in tensors],
            "origin": [number(tensor.origin) for tensor in tensors],
            "bytes": [tensor.total_bytes for tensor in tensors],
            "first": [_or(tensor.first, _ALWAYS) for tensor in tensors],
            "last": [_or(tensor.last, _ALWAYS) for tensor in tensors],
            "mapping": [mappings.number(tensor.mapping) for tensor in tensors],
            "value": [_or(tensor.value, _NO_VALUE) for tensor in tensors],
        },
        "mappings": mappings.found,
    }


def _or(number: int | None, otherwise: int) -> int:
    return otherwise if number is None else int(number)


class _Mappings:
    """Numbers the ways in which tensors lie, those of equal bytes alike."""

    def __init__(self) -> None:
        self.found: list[Repeats] = []
        self._known: dict[machine.OnTiles, int] = {}
        self._alike: dict[bytes, int] = {}

    def number(self, mapping: machine.OnTiles) -> int:
        if mapping not in self._known:
            held = mapping.bytes_per_tile()
            number = self._alike.setdefault(held.tobytes(), len(self.found))
            if number == len(self.found):
                self.found.append(repeats(held))
            self._known[mapping] = number
        return self._known[mapping]


def decode(data: Sequence[dict[str, Any]], texts: list[str]) -> tuple[machine.Liveness, ...]:
    """What `encode` wrote.

    Raises:
      LookupError: numbers that stand for no text or mapping.
      ValueError: columns of different lengths.
    """
    return tuple(_read(each, texts) for each in data)


def _read(data: dict[str, Any], texts: list[str]) -> machine.Liveness:
    steps, columns = data["steps"], data["tensors"]
    mappings = [machine.TileBytes(from_repeats(found)) for found in data["mappings"]]
    names = ("name", "category", "operation", "origin", "first", "last", "mapping", "value")
    rows = zip(*(columns[name] for name in names), strict=True)
    if len({len(steps[column]) for column in ("name", "origin", "bytes", "temporary")}) > 1:
        raise ValueError("columns of steps of different lengths")
    return machine.Liveness(
        names=tuple(texts[number] for number in steps["name"]),
        origins=tuple(texts[number] for number in steps["origin"]),
        bytes=np.array(steps["bytes"], dtype=np.int64),
        temporary_bytes=np.array(steps["temporary"], dtype=np.int64),
        tensors=tuple(
            machine.Lifetime(
                name=texts[name],
                category=texts[category],
                operation=texts[operation],
                origin=texts[origin],
                mapping=mappings[mapping],
                first=None if first == _ALWAYS else first,
                last=None if last == _ALWAYS else last,
                value=None if value == _NO_VALUE else value,
            )
            for name, category, operation, origin, first, last, mapping, value in rows
        ),
    )
