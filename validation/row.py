"""A row of a validation file: where it was measured, what ran, and in which unit."""

from __future__ import annotations

import dataclasses as dc
import json
import re
from collections.abc import Mapping
from typing import Any

from lowering.machine.target import IPU1, IPU2, IPU21, Target

# [D] of the card's published 280 TFLOP/s in halves: 128 operations of each tile in a cycle.
C600_CLOCK_HZ = 280e12 / (1472 * 128)

KINDS = ("hw", "emulator", "compiler")
"""Kinds of measurement that count; others are printed and left out of the statistics."""


class SkipError(Exception):
    """A row that the model cannot express; says why."""


class BrokenRowError(Exception):
    """A line that is not a row; says what is wrong."""


@dc.dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
      id: its name, for printing only.
      hardware: where it was measured, in words.
      workload: what ran; `op` or `model` names it.
      measured: the value.
      unit: of the value, with remarks after the first word.
      kind: "hw", "emulator", "compiler" or something else.
      source: who measured it, for printing only.
    """

    id: str
    hardware: str
    workload: Mapping[str, Any]
    measured: float
    unit: str
    kind: str
    source: str = ""

    @property
    def text(self) -> str:
        """What ran, in words, in lower case."""
        return str(self.workload.get("op") or self.workload.get("model") or "").lower()

    @property
    def target(self) -> Target:
        """The chip, at the clock that the row names."""
        return target_of(self.hardware)

    @property
    def ipus(self) -> int:
        """How many IPUs took part."""
        if "ipus" in self.workload:
            return int(self.workload["ipus"])
        found = re.search(r"pod\s*(\d+)", self.hardware, re.I) or re.search(
            r"(\d+) IPU", self.hardware
        )
        return int(found[1]) if found else 1

    @property
    def dtype(self) -> str:
        """The element type in JAX's words: float16 where nothing is said."""
        words = f"{self.workload.get('dtype', '')} {self.text}"
        return "float32" if re.search(r"fp32|float(?!16)", words) else "float16"

    @property
    def partials(self) -> str | None:
        """The type that sums are kept in; None where the row leaves it to the library."""
        words = str(self.workload.get("partials", ""))
        return {"fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}.get(
            words
        )

    def number(self, name: str) -> float:
        """A number of the workload."""
        value = self.workload.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise SkipError(f"the workload has no positive number {name!r}")
        return value


@dc.dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the model says of a workload, before it is put into the row's unit.

    Attributes:
      cycles: tile cycles.
      flops: floating-point operations of what took these cycles.
      items: samples of what took these cycles.
      bytes: of memory, or moved in these cycles.
      assumptions: what the row does not say.
    """

    cycles: float | None = None
    flops: float | None = None
    items: float | None = None
    bytes: float | None = None
    assumptions: tuple[str, ...] = ()

    def in_unit(self, unit: str, clock_hz: float) -> float:
        """The value that the row's unit asks for.

        Raises:
          SkipError: the unit is unknown, or is not what this workload has.
        """
        word = re.split(r"[\s(,]", unit.strip())[0]
        seconds = None if self.cycles is None else self.cycles / clock_hz
        values: dict[str, tuple[float | None, float]] = {"cycles": (self.cycles, 1.0)}
        for name, size in _SECONDS.items():
            values[name] = (seconds, size)
        for name, size in _BYTES.items():
            values[name] = (self.bytes, size)
        for name, size in _RATES.items():
            values[f"{name}FLOP/s"] = (_per(self.flops, seconds), size)
            values[f"{name}B/s"] = (_per(self.bytes, seconds), size)
        if re.fullmatch(r"[a-z]+/s", word):
            values.setdefault(word, (_per(self.items, seconds), 1.0))
        if word not in values:
            raise SkipError(f"unknown unit {unit!r}")
        value, size = values[word]
        if value is None:
            raise SkipError(f"the workload has no quantity in {unit!r}")
        return value / size


_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
_BYTES = {"bytes": 1.0, "B": 1.0, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 1e3, "MB": 1e6}
_RATES = {"": 1.0, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def _per(amount: float | None, seconds: float | None) -> float | None:
    return None if amount is None or not seconds else amount / seconds


def target_of(hardware: str) -> Target:
    """The chip that a description of hardware means.

    Raises:
      SkipError: no chip that the model knows is named.
    """
    if re.search(r"bow|c600|ipu21", hardware, re.I):
        target = IPU21
    elif re.search(r"gc200|mk\s*2|m2000|ipu2|1472 tiles", hardware, re.I):
        target = IPU2
    elif re.search(r"gc2|mk\s*1|ipu1|1216 tiles", hardware, re.I):
        target = IPU1
    else:
        raise SkipError(f"no chip of the model is named in {hardware!r}")
    if re.search("c600", hardware, re.I):
        target = dc.replace(target, clock_hz=C600_CLOCK_HZ)
    clock = re.search(r"([\d.]+)\s*GHz", hardware)
    return dc.replace(target, clock_hz=float(clock[1]) * 1e9) if clock else target


def parse(line: str) -> Row:
    """The row of one line.

    Raises:
      BrokenRowError: the line is not JSON, or lacks what a row must have.
    """
    try:
        data = json.loads(line)
    except ValueError as error:
        raise BrokenRowError(f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise BrokenRowError("not a JSON object")
    for name, kind in (("hardware", str), ("workload", dict), ("unit", str), ("kind", str)):
        if not isinstance(data.get(name), kind):
            raise BrokenRowError(f"{name!r} is missing, or not a {kind.__name__}")
    measured = data.get("measured")
    if isinstance(measured, bool) or not isinstance(measured, int | float) or measured <= 0:
        raise BrokenRowError("'measured' is missing, or not a positive number")
    return Row(
        id=str(data.get("id", "?")),
        hardware=data["hardware"],
        workload=data["workload"],
        measured=float(measured),
        unit=data["unit"],
        kind=data["kind"],
        source=str(data.get("source", "")),
    )
