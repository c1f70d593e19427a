"""Where the cycles go, by operation."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import Any

from ipujax.report.document.strings import Strings
from lowering import machine

_NAMES = {field.name for field in dc.fields(machine.OperationTotal)}


def encode(operations: Sequence[machine.OperationTotal], _: Strings) -> list[dict[str, Any]]:
    """An object for each, with texts written out."""
    return [dc.asdict(operation) for operation in operations]


def decode(
    data: Sequence[Mapping[str, Any]], _: Sequence[str]
) -> tuple[machine.OperationTotal, ...]:
    """The operations that `encode` wrote; those of earlier versions have no scopes."""
    known = ({key: value for key, value in each.items() if key in _NAMES} for each in data)
    return tuple(machine.OperationTotal(**each) for each in known)
