"""A report's document: what it has at its top, and its sections."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ipujax.errors import IPUError, ReportError
from ipujax.report.presentation.document import forms, sections, shape
from ipujax.report.presentation.document.forms import COUNT, TEXT, Form, Strings
from ipujax.report.presentation.document.steps import NODES, STEPS
from ipujax.version import __version__
from lowering import machine, trace

if TYPE_CHECKING:
    from ipujax.report.report import Report

SCHEMA = 2
"""Changes whenever a reader of older reports would go wrong."""

_REWRITE = "write it again with report.to_json(path)"
_WRONG = (
    *(ArithmeticError, AttributeError, IPUError, LookupError),
    *(MemoryError, RecursionError, TypeError, ValueError),
)

_ONE = forms.plain(type="integer", minimum=1)
_ARGUMENTS = forms.mapped(TEXT).via(
    lambda paths: {str(value): path for value, path in paths.items()},
    lambda found: {int(value): path for value, path in found.items()},
)
_ARRAYS: forms.Forms = {kind: forms.ARRAY for kind in trace.KINDS}
_FIELDS: forms.Forms = {
    "schema": forms.plain(const=SCHEMA),
    "ipujax": TEXT,
    "name": TEXT,
    "target": sections.TARGET,
    "num_ipus": _ONE,
    "replication_factor": _ONE,
    "cycles": COUNT,
    "seconds": forms.POSITIVE,
    "elements": COUNT,
    "throughput": forms.or_null(forms.POSITIVE),
    "default_share": forms.SHARE,
    "assumptions": forms.listed(TEXT),
    "arguments": _ARGUMENTS,
    "strings": forms.plain(**forms.listed(TEXT).schema, minItems=1),
    "costs": forms.listed(sections.COST),
    "advice": forms.listed(sections.ADVICE),
    "busy_cycles": Form(forms.described(_ARRAYS), forms.mapped(forms.ARRAY).encode),
    "memory": sections.MEMORY,
    "liveness": sections.LIVENESS,
    "program": sections.PROGRAM,
    "operations": sections.OPERATIONS,
    "pipeline": forms.or_null(sections.PIPELINE),
    "steps": STEPS,
    "host": forms.or_null(sections.HOST),
}
_OF_PROFILE = tuple(f.name for f in dc.fields(machine.Profile) if f.name in _FIELDS)
_OF_REPORT = ("elements", "costs", "advice", "arguments", "host")


def json_schema() -> forms.Schema:
    """What may stand where in a report's file, as draft 2020-12 has it."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What ipujax's machine model says of a program",
        "description": "See report_format.md. Readers pass over keys that they do not know.",
        **forms.described(_FIELDS),
        "$defs": {**forms.DEFINED, **NODES},
    }


def report_dict(report: Report) -> dict[str, Any]:
    """See `Report.to_dict`."""
    strings = Strings()
    given = {"schema": SCHEMA, "ipujax": __version__, "strings": []}
    found = {
        key: form.encode(given[key] if key in given else getattr(report, key), strings)
        for key, form in _FIELDS.items()
    }
    return {**found, "strings": strings.texts}


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
    what = ""
    if not isinstance(data, dict):
        what = f"{type(data).__name__} where an object should be"
    elif "schema" not in data:
        what = 'an object without the key "schema"'
    elif type(data["schema"]) is not int:
        what = f"schema is {data['schema']!r}, but must be {SCHEMA}"
    if what:
        fix = "give a file that report.to_json(path) wrote"
        raise ReportError(f"{name} holds no report: {what}\n  fix:   {fix}")
    number: int = data["schema"]
    if number != SCHEMA:
        fix = "write it again with this ipujax" if number < SCHEMA else "update ipujax"
        what = f"{name} was written by schema {number}, and this ipujax reads schema {SCHEMA}"
        raise ReportError(f"{what}\n  fix:   {fix}")
    try:
        wrong = shape.difference(data, json_schema())
    except RecursionError:
        raise ReportError(f"{name} is nested too deeply to be a report") from None
    if wrong:
        raise ReportError(f"{name} is no whole report: {wrong}\n  fix:   {_REWRITE}")
    return data


class _Reader:
    """Reads a document that has the right form, and may still contradict itself."""

    def __init__(self, document: dict[str, Any], name: str):
        self._document = document
        self._name = name

    def fields(self) -> dict[str, Any]:
        """Of the `Report`."""
        texts: list[str] = self._document["strings"]
        parts: dict[str, Any] = {}
        for key in (*_OF_PROFILE, *_OF_REPORT):
            decode, data = _FIELDS[key].decode, self._document[key]
            parts[key] = self._tried(key, functools.partial(decode, data, texts))
        profile = machine.Profile(**{key: parts.pop(key) for key in _OF_PROFILE}, mappings={})
        self._check_sizes(profile)
        return {"profile": profile, **parts}

    def _tried(self, key: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
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
        self._tried("steps", lambda: trace.busy(profile.steps.trace, profile.num_ipus))

    def _broken(self, key: str, what: str) -> ReportError:
        return ReportError(
            f"{self._name} contradicts itself in `{key}`: {what}\n  fix:   {_REWRITE}"
        )
