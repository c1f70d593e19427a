"""What may stand where in a report's file: the JSON Schema of `docs/report.schema.json`."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

from ipujax.report.document import runs
from lowering import machine, trace

Schema = dict[str, Any]

NUMBER = 2
"""Changes whenever a reader of older reports would go wrong."""

_MOST_PARTS = 10**6
_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_REAL: Schema = {"type": "number"}
_POSITIVE: Schema = {"type": "number", "minimum": 0}
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_FLAG: Schema = {"type": "boolean"}
_REF: Schema = {"type": "integer", "minimum": 0}
_OR_NONE: Schema = {"type": "integer", "minimum": -1}
_MANY: Schema = {"type": "integer", "minimum": 1, "maximum": runs.MOST}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _may_have(schema: Schema, **properties: Schema) -> Schema:
    """An object with further keys, which reports of earlier versions do not have."""
    return {**schema, "properties": {**schema["properties"], **properties}}


def _mapping(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _tuple(*items: Schema) -> Schema:
    count = len(items)
    return {"type": "array", "prefixItems": list(items), "minItems": count, "maxItems": count}


def _either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def _or_null(schema: Schema) -> Schema:
    return _either({"type": "null"}, schema)


def _one_of(*values: object) -> Schema:
    return {"enum": list(values)}


def _columns(**columns: Schema) -> Schema:
    return _object(**{name: _list(each) for name, each in columns.items()})


def _use(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def json_schema() -> Schema:
    """The whole, as draft 2020-12 has it."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What ipujax's machine model says of a program",
        "description": "See report_format.md. Readers pass over keys that they do not know.",
        **_document(),
        "$defs": {
            "runs": _list(_tuple(_WHOLE, _WHOLE, _MANY)),
            "repeats": _list(_tuple(_COUNT, _MANY)),
            **_nodes(),
        },
    }


def _document() -> Schema:
    return _object(
        schema={"const": NUMBER},
        ipujax=_TEXT,
        name=_TEXT,
        target=_target(),
        num_ipus={"type": "integer", "minimum": 1},
        replication_factor={"type": "integer", "minimum": 1},
        cycles=_COUNT,
        seconds=_POSITIVE,
        elements=_COUNT,
        throughput=_or_null(_POSITIVE),
        default_share=_SHARE,
        assumptions=_list(_TEXT),
        arguments=_mapping(_TEXT),
        strings={**_list(_TEXT), "minItems": 1},
        costs=_list(_cost()),
        advice=_list(_advice()),
        busy_cycles=_object(**{kind: _list(_COUNT) for kind in trace.KINDS}),
        memory=_memory(),
        liveness=_list(_liveness()),
        program=_program(),
        operations=_list(_operation()),
        pipeline=_or_null(_pipeline()),
        steps=_object(count=_COUNT, root=_REF, nodes=_list(_node())),
        host=_or_null(_host()),
    )


def _target() -> Schema:
    """Numbers only: what a chip can be is the business of `ipu.targets.Target`."""
    fields = {field.name: _REAL for field in dc.fields(machine.Target)}
    rates = _list(_tuple(_TEXT, _TEXT, _WHOLE))
    links = {field.name: _REAL for field in dc.fields(machine.Links)}
    return _object(
        **{
            **fields,
            "name": _TEXT,
            "shares_exchange_bus": _FLAG,
            "macs_per_cycle": rates,
            "amp_units": rates,
            "links": _object(**links),
        }
    )


def _cost() -> Schema:
    cost = _object(
        title=_TEXT,
        share=_POSITIVE,
        cycles=_POSITIVE,
        detail=_TEXT,
        remedy=_TEXT,
        origin=_TEXT,
        ipu=_or_null(_COUNT),
    )
    return _may_have(cost, name=_TEXT)


def _advice() -> Schema:
    return _may_have(_object(rule=_TEXT, text=_TEXT, about_bytes=_WHOLE), enough=_FLAG)


def _memory() -> Schema:
    tensor = _object(
        name=_TEXT,
        category=_one_of(*machine.CATEGORIES),
        ipu=_COUNT,
        total_bytes=_COUNT,
        tile_bytes=_COUNT,
        operation=_TEXT,
        origin=_TEXT,
        value=_or_null(_COUNT),
    )
    by_category = {"type": "object", "required": list(machine.CATEGORIES)}
    return _object(
        fits=_FLAG,
        limit=_COUNT,
        missing_bytes=_COUNT,
        worst=_object(ipu=_COUNT, tile=_COUNT),
        most_code_bytes=_COUNT,
        code_limit=_COUNT,
        tile_peak_bytes=_list(_use("repeats")),
        tile_categories=_list(_mapping(_use("repeats"))),
        always_live_bytes=_list(_COUNT),
        peak_bytes=_list(_COUNT),
        remote_bytes=_list(_COUNT),
        by_category={**by_category, "additionalProperties": _COUNT},
        ipu_categories={**by_category, "additionalProperties": _list(_COUNT)},
        biggest=_list(tensor),
    )


def _liveness() -> Schema:
    return _object(
        worst=_COUNT,
        steps=_columns(name=_REF, origin=_REF, bytes=_COUNT, temporary=_COUNT),
        tensors=_columns(
            name=_REF,
            category=_REF,
            operation=_REF,
            origin=_REF,
            bytes=_COUNT,
            first=_OR_NONE,
            last=_OR_NONE,
            mapping=_REF,
            value=_OR_NONE,
        ),
        mappings=_list(_use("repeats")),
    )


def _program() -> Schema:
    return _columns(
        kind=_REF,
        name=_REF,
        origin=_REF,
        ipu=_OR_NONE,
        count=_COUNT,
        cycles=_COUNT,
        children=_list(_REF),
    )


def _operation() -> Schema:
    operation = _object(
        name=_TEXT,
        ipu=_COUNT,
        runs=_COUNT,
        cycles=_POSITIVE,
        exchange_cycles=_POSITIVE,
        flops=_POSITIVE,
        bytes=_POSITIVE,
        tiles=_COUNT,
        flop_utilisation=_or_null(_POSITIVE),
        source=_one_of("formula", "default"),
        origin=_TEXT,
    )
    return _may_have(operation, scope=_TEXT)


def _pipeline() -> Schema:
    phase = _one_of("fwd", "bwd", "wgt")
    return _object(
        schedule=_TEXT,
        stages=_COUNT,
        micro_batches=_COUNT,
        ticks=_COUNT,
        bubble_fraction=_SHARE,
        utilisation=_POSITIVE,
        cycles=_COUNT,
        tick_cycles=_use("repeats"),
        stage_cycles=_list(_object(stage=_COUNT, phase=phase, cycles=_POSITIVE)),
        stage_ipus=_list(_list(_COUNT)),
        tasks=_list(
            _object(stage=_COUNT, phase=phase, ticks=_use("runs"), micro_batches=_use("runs"))
        ),
    )


def _node() -> Schema:
    return _either(*(_use(name) for name in _nodes()))


def _nodes() -> dict[str, Schema]:
    """The kinds of nodes of steps."""
    parts = {**_MANY, "maximum": _MOST_PARTS}
    ipus = _either(_COUNT, _list(_COUNT))
    columns = {
        "kind": _list({**_REF, "maximum": len(trace.KINDS) - 1}),
        **{name: _list(_COUNT) for name in ("name", "origin", "cycles")},
        "start": _or_null(_list(_COUNT)),
    }
    task = _object(
        body=_REF,
        stage=_or_null(_COUNT),
        phase=_or_null(_one_of(*trace.PHASES)),
        places=_use("runs"),
        starts=_use("runs"),
        micro_batches=_use("runs"),
    )
    parts_of = _list(_tuple(_REF, _COUNT, _WHOLE, parts))
    return {
        f"{name}_node": _object(type={"const": name}, **properties)
        for name, properties in {
            "block": {"ipu": ipus, **columns},
            "group": {"parts": parts_of},
            "on": {"body": _REF, "ipu": _COUNT},
            "loop": {"body": _REF, "count": _COUNT, "period": _COUNT},
            "tasks": {"tasks": _list(task)},
        }.items()
    }


def _host() -> Schema:
    return _object(
        spans=_columns(kind=_REF, name=_REF, start=_POSITIVE, seconds=_POSITIVE, thread=_REF)
    )
