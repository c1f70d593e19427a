"""The document of a report: its top-level keys and sections, and their consistency."""

from __future__ import annotations

import contextlib
import dataclasses as dc
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ipujax.ground import IPUError, ReportError, __version__
from ipujax.report.presentation.document import forms, sections, shape
from ipujax.report.presentation.document.forms import COUNT, TEXT, Form, StringTable
from ipujax.report.presentation.document.trace_nodes import NODES, STEPS
from ipujax.report.presentation.report_file import GIVE_A_REPORT, REWRITE
from lowering import machine, trace

if TYPE_CHECKING:
    from ipujax.report.report import Report

SCHEMA = 2
"""Changes whenever a reader of older reports would go wrong."""

_WRONG = (
    *(ArithmeticError, AttributeError, IPUError, LookupError),
    *(MemoryError, RecursionError, TypeError, ValueError),
)

_ONE = forms.json_form(type="integer", minimum=1)
_ARGUMENTS = forms.dict_form(TEXT).with_conversion(
    lambda paths: {str(value): path for value, path in paths.items()},
    lambda paths: {int(value): path for value, path in paths.items()},
)
_ARRAYS: forms.Forms = {kind: forms.ARRAY for kind in trace.KINDS}
_FIELDS: forms.Forms = {
    "schema": forms.json_form(const=SCHEMA),
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
    "throughput": forms.optional_form(forms.POSITIVE),
    "batch_size": forms.optional_form(COUNT),
    "default_share": forms.SHARE,
    "assumptions": forms.tuple_form(TEXT),
    "arguments": _ARGUMENTS,
    "strings": forms.json_form(**forms.tuple_form(TEXT).schema, minItems=1),
    "costs": forms.tuple_form(sections.COST),
    "advice": forms.tuple_form(sections.ADVICE),
    "busy_cycles": Form(forms.object_schema(_ARRAYS), forms.dict_form(forms.ARRAY).encode),
    "breakdown": forms.optional_form(sections.BREAKDOWN),
    "memory": sections.MEMORY,
    "liveness": sections.LIVENESS,
    "program": sections.PROGRAM,
    "operations": sections.OPERATIONS,
    "roofline": forms.optional_form(sections.ROOFLINE),
    "graph": forms.optional_form(sections.GRAPH),
    "pipeline": forms.optional_form(sections.PIPELINE),
    "tile_activity": forms.optional_form(sections.TILE_ACTIVITY),
    "steps": STEPS,
    "host": forms.optional_form(sections.HOST),
    "sources": sections.SOURCES,
    "meshes": sections.MESHES,
}
_OF_PROFILE = tuple(f.name for f in dc.fields(machine.Profile) if f.name in _FIELDS)
_LATER = (
    "label", "instances", "roofline", "graph", "breakdown", "sources", "meshes", "batch_size",
    "tile_activity",
)  # fmt: skip
_OF_REPORT = (
    "elements", "batch_size", "costs", "advice", "arguments", "host", "label", "sources", "meshes",
    "tile_activity",
)  # fmt: skip


def build_report_schema() -> forms.Schema:
    """Returns the JSON Schema, draft 2020-12, of a report's file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What ipujax's machine model says of a program",
        "description": "See report_format.md. Readers pass over keys that they do not know.",
        **forms.object_schema(_FIELDS, optional_keys=_LATER),
        "$defs": {**forms.DEFINED, **NODES},
    }


def report_dict(report: Report) -> dict[str, Any]:
    """Returns a report as plain JSON data; see `Report.to_dict`."""
    strings = StringTable()
    fixed = {"schema": SCHEMA, "ipujax": __version__, "strings": []}
    document = {
        key: form.encode(fixed[key] if key in fixed else getattr(report, key), strings)
        for key, form in _FIELDS.items()
    }
    return {**document, "strings": strings.texts}


def decode_sections(document: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Decodes those sections that a document has, which must be whole and of this schema."""
    return {
        key: _FIELDS[key].decode(document[key], document["strings"])
        for key in keys
        if key in document
    }


def read_report_document(data: object, name: str) -> dict[str, Any]:
    """Reads the fields of the `Report` that a document describes.

    Args:
      data: a document as `report_dict` returns it.
      name: the file's name, for errors.

    Raises:
      ReportError: (a `ValueError`) no report, one of another schema, or one that is broken.
    """
    document = _check_report_document(data, name)
    fields: dict[str, Any] = {}
    for key in (key for key in (*_OF_PROFILE, *_OF_REPORT) if key in document):
        with _raise_as_contradiction(name, key):
            fields[key] = _FIELDS[key].decode(document[key], document["strings"])
    fields["read_activity"] = fields.pop("tile_activity", None)
    profile_fields = {key: fields.pop(key) for key in _OF_PROFILE if key in fields}
    profile_fields["steps"] = machine.Steps(
        profile_fields["steps"].trace, profile_fields["operations"]
    )
    profile = machine.Profile(**profile_fields, mappings={})
    for key, contradiction in _find_contradictions(profile):
        raise _contradiction_error(name, key, contradiction)
    with _raise_as_contradiction(name, "steps"):
        trace.count_busy_cycles(profile.steps.trace, profile.num_ipus)
    return {"profile": profile, **fields}


def _check_report_document(data: Any, name: str) -> dict[str, Any]:
    """Checks that data is a report of this schema, and returns it."""
    problem = ""
    if not isinstance(data, dict):
        problem = f"{type(data).__name__} where an object should be"
    elif "schema" not in data:
        problem = 'an object without the key "schema"'
    elif type(data["schema"]) is not int:
        problem = f"schema is {data['schema']!r}, but must be {SCHEMA}"
    if problem:
        raise ReportError(f"{name} holds no report: {problem}", fix=GIVE_A_REPORT)
    schema_number: int = data["schema"]
    if schema_number != SCHEMA:
        fix = "write it again with this ipujax" if schema_number < SCHEMA else "update ipujax"
        problem = (
            f"{name} was written by schema {schema_number}, and this ipujax reads schema {SCHEMA}"
        )
        raise ReportError(problem, fix=fix)
    try:
        difference = shape.find_schema_difference(data, build_report_schema())
    except RecursionError:
        raise ReportError(f"{name} is nested too deeply to be a report") from None
    if difference:
        raise ReportError(f"{name} is no whole report: {difference}", fix=REWRITE)
    return data


@contextlib.contextmanager
def _raise_as_contradiction(name: str, key: str) -> Generator[None]:
    """Turns errors of decoding well-formed but impossible values into a `ReportError`."""
    try:
        yield
    except _WRONG as error:
        raise _contradiction_error(name, key, f"{type(error).__name__}: {error}") from error


def _find_contradictions(profile: machine.Profile) -> Iterator[tuple[str, str]]:
    """Yields keys that disagree on IPUs, tiles or cycles with the rest, and how they do."""
    memory, ipus = profile.memory, profile.num_ipus
    lists_over_ipus = {
        "memory.tile_peak_bytes": memory.tile_peak_bytes,
        "memory.always_live_bytes": memory.always_live_bytes,
        "memory.peak_bytes": memory.peak_bytes,
        "memory.remote_bytes": memory.remote_bytes,
        **{f"memory.ipu_categories.{k}": v for k, v in memory.ipu_categories.items()},
        "liveness": profile.liveness,
        **{f"breakdown.{k}": v for k, v in (profile.breakdown or {}).items()},
    }
    for key, values in lists_over_ipus.items():
        if len(values) != ipus:
            yield key, f"a list over {len(values)} of {ipus} IPUs"
    tiles, target_tiles = memory.tile_peak_bytes.shape[1:], profile.target.tiles_per_ipu
    if tiles != (target_tiles,):
        yield "memory.tile_peak_bytes", f"tiles {tiles}, where the target has {target_tiles}"
    cycles, last_end = profile.cycles, profile.steps.trace.span
    if last_end > cycles:
        yield "cycles", f"{cycles} cycles, where the last step ends after {last_end}"
    spent = profile.breakdown
    if spent is not None and np.any(np.sum([*spent.values()], axis=0) != cycles):
        yield "breakdown", f"causes that do not add up to {cycles} cycles on every IPU"


def _contradiction_error(name: str, key: str, contradiction: str) -> ReportError:
    return ReportError(f"{name} contradicts itself in `{key}`: {contradiction}", fix=REWRITE)
