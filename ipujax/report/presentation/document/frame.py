"""A report's document: what it has at its top, and its sections."""

from __future__ import annotations

import contextlib
import dataclasses as dc
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ipujax.errors import IPUError, ReportError
from ipujax.report.presentation.document import forms, sections, shape
from ipujax.report.presentation.document.forms import COUNT, TEXT, Form, Strings
from ipujax.report.presentation.document.steps import NODES, STEPS
from ipujax.report.presentation.file import GIVE_A_REPORT, REWRITE
from ipujax.version import __version__
from lowering import machine, trace

if TYPE_CHECKING:
    from ipujax.report.report import Report

SCHEMA = 2
"""Changes whenever a reader of older reports would go wrong."""

_WRONG = (
    *(ArithmeticError, AttributeError, IPUError, LookupError),
    *(MemoryError, RecursionError, TypeError, ValueError),
)

_ONE = forms.plain(type="integer", minimum=1)
_ARGUMENTS = forms.mapped(TEXT).via(
    lambda paths: {str(value): path for value, path in paths.items()},
    lambda paths: {int(value): path for value, path in paths.items()},
)
_ARRAYS: forms.Forms = {kind: forms.ARRAY for kind in trace.KINDS}
_FIELDS: forms.Forms = {
    "schema": forms.plain(const=SCHEMA),
    "ipujax": TEXT,
    "name": TEXT,
    "label": TEXT,
    "target": sections.TARGET,
    "num_ipus": _ONE,
    "replication_factor": _ONE,
    "instances": _ONE,
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
    "breakdown": forms.or_null(sections.BREAKDOWN),
    "memory": sections.MEMORY,
    "liveness": sections.LIVENESS,
    "program": sections.PROGRAM,
    "operations": sections.OPERATIONS,
    "graph": forms.or_null(sections.GRAPH),
    "pipeline": forms.or_null(sections.PIPELINE),
    "steps": STEPS,
    "host": forms.or_null(sections.HOST),
    "sources": sections.SOURCES,
}
_OF_PROFILE = tuple(f.name for f in dc.fields(machine.Profile) if f.name in _FIELDS)
_LATER = ("label", "instances", "graph", "breakdown", "sources")
_OF_REPORT = ("elements", "costs", "advice", "arguments", "host", "label", "sources")


def json_schema() -> forms.Schema:
    """What may stand where in a report's file, as draft 2020-12 has it."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What ipujax's machine model says of a program",
        "description": "See report_format.md. Readers pass over keys that they do not know.",
        **forms.described(_FIELDS, later=_LATER),
        "$defs": {**forms.DEFINED, **NODES},
    }


def report_dict(report: Report) -> dict[str, Any]:
    """See `Report.to_dict`."""
    strings = Strings()
    fixed = {"schema": SCHEMA, "ipujax": __version__, "strings": []}
    document = {
        key: form.encode(fixed[key] if key in fixed else getattr(report, key), strings)
        for key, form in _FIELDS.items()
    }
    return {**document, "strings": strings.texts}


def read(data: object, name: str) -> dict[str, Any]:
    """The fields of the `Report` that a document describes.

    Args:
      data: what `report_dict` gave.
      name: of the file, for errors.

    Raises:
      ReportError: (a `ValueError`) no report, one of another schema, or one that is broken.
    """
    document = _checked(data, name)
    fields: dict[str, Any] = {}
    for key in (key for key in (*_OF_PROFILE, *_OF_REPORT) if key in document):
        with _contradicting(name, key):
            fields[key] = _FIELDS[key].decode(document[key], document["strings"])
    found = {key: fields.pop(key) for key in _OF_PROFILE if key in fields}
    found["steps"] = machine.Steps(found["steps"].trace, found["operations"])
    profile = machine.Profile(**found, mappings={})
    for key, what in _contradictions(profile):
        raise _broken(name, key, what)
    with _contradicting(name, "steps"):
        trace.busy(profile.steps.trace, profile.num_ipus)
    return {"profile": profile, **fields}


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
        raise ReportError(f"{name} holds no report: {what}", fix=GIVE_A_REPORT)
    number: int = data["schema"]
    if number != SCHEMA:
        fix = "write it again with this ipujax" if number < SCHEMA else "update ipujax"
        what = f"{name} was written by schema {number}, and this ipujax reads schema {SCHEMA}"
        raise ReportError(what, fix=fix)
    try:
        wrong = shape.difference(data, json_schema())
    except RecursionError:
        raise ReportError(f"{name} is nested too deeply to be a report") from None
    if wrong:
        raise ReportError(f"{name} is no whole report: {wrong}", fix=REWRITE)
    return data


@contextlib.contextmanager
def _contradicting(name: str, key: str) -> Generator[None]:
    """What has the right form, and says something impossible all the same, is a `ReportError`."""
    try:
        yield
    except _WRONG as error:
        raise _broken(name, key, f"{type(error).__name__}: {error}") from error


def _contradictions(profile: machine.Profile) -> Iterator[tuple[str, str]]:
    """Where parts speak of other IPUs, tiles or cycles than the rest: the key, and what it says."""
    memory, ipus = profile.memory, profile.num_ipus
    lists = {
        "memory.tile_peak_bytes": memory.tile_peak_bytes,
        "memory.always_live_bytes": memory.always_live_bytes,
        "memory.peak_bytes": memory.peak_bytes,
        "memory.remote_bytes": memory.remote_bytes,
        **{f"memory.ipu_categories.{k}": v for k, v in memory.ipu_categories.items()},
        "liveness": profile.liveness,
        **{f"breakdown.{k}": v for k, v in (profile.breakdown or {}).items()},
    }
    for key, values in lists.items():
        if len(values) != ipus:
            yield key, f"a list over {len(values)} of {ipus} IPUs"
    tiles, known = memory.tile_peak_bytes.shape[1:], profile.target.tiles_per_ipu
    if tiles != (known,):
        yield "memory.tile_peak_bytes", f"tiles {tiles}, where the target has {known}"
    cycles, ends = profile.cycles, profile.steps.trace.span
    if ends > cycles:
        yield "cycles", f"{cycles} cycles, where the last step ends after {ends}"
    spent = profile.breakdown
    if spent is not None and np.any(np.sum([*spent.values()], axis=0) != cycles):
        yield "breakdown", f"causes that do not add up to {cycles} cycles on every IPU"


def _broken(name: str, key: str, what: str) -> ReportError:
    return ReportError(f"{name} contradicts itself in `{key}`: {what}", fix=REWRITE)
