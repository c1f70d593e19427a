"""The chip, with every number that describes it."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import numpy as np

from ipujax.report.document.fields import described
from lowering import machine

_RATES = ("macs_per_cycle", "amp_units")


def encode(target: machine.Target) -> dict[str, Any]:
    """Fields by name."""
    fields = _fields(target)
    for name in _RATES:
        rates: machine.Rates = getattr(target, name)
        fields[name] = [[*pair, _plain(rate)] for pair, rate in rates]
    return {**fields, "links": _fields(target.links)}


def decode(data: dict[str, Any]) -> machine.Target:
    """The chip that `encode` wrote.

    Raises:
      TargetError: (a `ValueError`) a field that no chip can have.
    """
    rates = {
        name: tuple(((given, partials), rate) for given, partials, rate in data[name])
        for name in _RATES
    }
    links = described(machine.Links, data["links"])
    return described(machine.Target, {**data, **rates, "links": links})


def _fields(described: machine.Target | machine.Links) -> dict[str, Any]:
    return {field.name: _plain(getattr(described, field.name)) for field in dc.fields(described)}


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    return value.item() if isinstance(value, np.generic) else value
