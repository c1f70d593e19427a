"""A report's document: what it has at its top, and its sections."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ipujax.errors import IPUError, ReportError
from ipujax.report.document import (
    host,
    liveness,
    memory,
    operations,
    pipeline,
    program,
    schema,
    shape,
    steps,
    target,
)
from ipujax.report.document.fields import described
from ipujax.report.document.strings import Strings
from ipujax.report.findings import Advice, Cost
from ipujax.version import __version__
from lowering import machine, trace

if TYPE_CHECKING:
    from ipujax.report.report import Report

SCHEMA = schema.NUMBER

_REWRITE = "write it again with report.to_json(path)"
_WRONG = (
    *(ArithmeticError, AttributeError, IPUError, LookupError),
    *(MemoryError, RecursionError, TypeError, ValueError),
)

_Section = TypeVar("_Section")
_Described = TypeVar("_Described", Advice, Cost)


def report_dict(report: Report) -> dict[str, Any]:
    """See `Report.to_dict`."""
    strings = Strings()
    sections = _sections(report, strings)
    return {
        "schema": SCHEMA,
        "ipujax": __version__,
        "name": report.name,
        "target": target.encode(report.target),
        "num_ipus": int(report.num_ipus),
        "replication_factor": int(report.replication_factor),
        "cycles": int(report.cycles),
        "seconds": float(report.seconds),
        "elements": int(report.elements),
        "throughput": report.throughput,
        "default_share": float(report.default_share),
        "assumptions": list(report.assumptions),
        "arguments": {str(value): path for value, path in report.arguments.items()},
        "strings": strings.texts,
        "costs": [_plain(cost) for cost in report.costs],
        "advice": [_plain(entry) for entry in report.advice],
        "busy_cycles": {kind: array.tolist() for kind, array in report.busy_cycles.items()},
        **sections,
    }


def _sections(report: Report, strings: Strings) -> dict[str, Any]:
    profile = report.profile
    lines = report.pipeline
    return {
        "memory": memory.encode(profile.memory, strings),
        "liveness": liveness.encode(profile.liveness, strings),
        "program": program.encode(profile.program, strings),
        "operations": operations.encode(profile.operations, strings),
        "pipeline": None if lines is None else pipeline.encode(lines, strings),
        "steps": steps.encode(profile.steps, strings),
        "host": None if report.host is None else host.encode(report.host, strings),
    }


def _plain(described: Advice | Cost) -> dict[str, Any]:
    """Fields by name, in numbers of Python."""
    fields = dc.asdict(described)
    return {name: v.item() if isinstance(v, np.generic) else v for name, v in fields.items()}


def read(data: object, name: str) -> dict[str, Any]:
    """The fields of the `Report` that a document describes.

    Args:
      data: what `report_dict` gave.
      name: of the file, for errors.

    Raises:
      ReportError: (a `ValueError`) no report, one of another schema, or one that is broken.
    """
    return _Reader(_checked(data, name), name).fields()


def _checked(data: Any, name: str) -> dict[str, Any]:
    """What looks like a report of this schema."""
    if not isinstance(data, dict) or "schema" not in data:
        raise ReportError(
            f"{name} holds no report: {_found(data)}\n"
            "  fix:   give a file that report.to_json(path) wrote"
        )
    _check_number(data["schema"], name)
    try:
        wrong = shape.difference(data, schema.json_schema())
    except RecursionError:
        raise ReportError(f"{name} is nested too deeply to be a report") from None
    if wrong:
        raise ReportError(f"{name} is no whole report: {wrong}\n  fix:   {_REWRITE}")
    return data


def _check_number(number: Any, name: str) -> None:
    if type(number) is not int:
        raise ReportError(
            f"{name} holds no report: schema is {number!r}, but must be {SCHEMA}\n"
            "  fix:   give a file that report.to_json(path) wrote"
        )
    if number == SCHEMA:
        return
    older = number < SCHEMA
    fix = "write it again with this ipujax" if older else "update ipujax"
    raise ReportError(
        f"{name} was written by schema {number}, and this ipujax reads schema {SCHEMA}\n"
        f"  fix:   {fix}"
    )


def _found(data: Any) -> str:
    if isinstance(data, dict):
        return 'an object without the key "schema"'
    return f"{type(data).__name__} where an object should be"


class _Reader:
    """Reads a document that has the right form, and may still contradict itself."""

    def __init__(self, document: dict[str, Any], name: str):
        self._document = document
        self._texts: list[str] = document["strings"]
        self._name = name

    def fields(self) -> dict[str, Any]:
        """Of the `Report`."""
        document = self._document
        profile = self._profile()
        self._check_sizes(profile)
        return {
            "profile": profile,
            "elements": document["elements"],
            "costs": self._part("costs", lambda data, _: _all(Cost, data)),
            "advice": self._part("advice", lambda data, _: _all(Advice, data)),
            "arguments": self._part("arguments", lambda data, _: _arguments(data)),
            "host": self._optional("host", host.decode),
        }

    def _profile(self) -> machine.Profile:
        document = self._document
        return machine.Profile(
            name=document["name"],
            target=self._part("target", lambda data, _: target.decode(data)),
            num_ipus=document["num_ipus"],
            replication_factor=document["replication_factor"],
            cycles=document["cycles"],
            steps=self._part("steps", steps.decode),
            memory=self._part("memory", memory.decode),
            liveness=self._part("liveness", liveness.decode),
            program=self._part("program", program.decode),
            operations=self._part("operations", operations.decode),
            default_share=document["default_share"],
            pipeline=self._optional("pipeline", pipeline.decode),
            assumptions=tuple(document["assumptions"]),
            mappings={},
        )

    def _optional(self, key: str, decode: Callable[[Any, list[str]], _Section]) -> _Section | None:
        return None if self._document[key] is None else self._part(key, decode)

    def _part(self, key: str, decode: Callable[[Any, list[str]], _Section]) -> _Section:
        try:
            return decode(self._document[key], self._texts)
        except _WRONG as error:
            raise self._broken(key, f"{type(error).__name__}: {error}") from error

    def _check_sizes(self, profile: machine.Profile) -> None:
        """Whether all speak of the same IPUs."""
        lists = {
            "memory.tile_peak_bytes": profile.memory.tile_peak_bytes,
            "memory.always_live_bytes": profile.memory.always_live_bytes,
            "memory.peak_bytes": profile.memory.peak_bytes,
            "memory.remote_bytes": profile.memory.remote_bytes,
            **{f"memory.ipu_categories.{k}": v for k, v in profile.memory.ipu_categories.items()},
            "liveness": profile.liveness,
        }
        for key, values in lists.items():
            if len(values) != profile.num_ipus:
                what = f"a list over {len(values)} of {profile.num_ipus} IPUs"
                raise self._broken(key, what)
        tiles = profile.memory.tile_peak_bytes.shape[1:]
        if tiles != (profile.target.tiles_per_ipu,):
            what = f"tiles {tiles}, where the target has {profile.target.tiles_per_ipu}"
            raise self._broken("memory.tile_peak_bytes", what)
        ends = profile.steps.trace.span
        if ends > profile.cycles:
            what = f"{profile.cycles} cycles, where the last step ends after {ends}"
            raise self._broken("cycles", what)
        self._part("steps", lambda *_: trace.busy(profile.steps.trace, profile.num_ipus))

    def _broken(self, key: str, what: str) -> ReportError:
        return ReportError(
            f"{self._name} contradicts itself in `{key}`: {what}\n  fix:   {_REWRITE}"
        )


def _all(kind: type[_Described], data: list[dict[str, Any]]) -> tuple[_Described, ...]:
    return tuple(described(kind, entry) for entry in data)


def _arguments(data: dict[str, str]) -> dict[int, str]:
    return {int(value): path for value, path in data.items()}
