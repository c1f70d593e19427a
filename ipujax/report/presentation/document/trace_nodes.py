"""The form of a report's steps: the tree of their trace as a list of nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ipujax.report.presentation.document import forms
from ipujax.report.presentation.document.forms import COUNT, Form, Schema, StringTable
from ipujax.report.presentation.document.runs import (
    Runs,
    decode_runs,
    encode_runs,
    group_equal_rows,
)
from lowering import machine, trace

_KIND = forms.json_form(type="integer", minimum=0, maximum=len(trace.KINDS) - 1)
_MANY = forms.json_form(**{**forms.MANY.schema, "maximum": 10**6})
_COLUMN = forms.tuple_form(COUNT)
_NUMBER = forms.json_form(type="integer", minimum=trace.NONE)
_LATER = {"block": ("operation",)}
_TASK = {
    "body": COUNT,
    "stage": forms.optional_form(COUNT),
    "phase": forms.optional_form(forms.enum_form(trace.PHASES)),
    **dict.fromkeys(("places", "starts", "micro_batches"), forms.RUNS),
}
_FIELDS: Mapping[str, forms.Forms] = {
    "block": {
        "ipu": Form(forms.schema_of_alternatives(COUNT.schema, _COLUMN.schema)),
        "kind": forms.tuple_form(_KIND),
        "name": _COLUMN,
        "origin": _COLUMN,
        "operation": forms.tuple_form(_NUMBER),
        "start": forms.optional_form(_COLUMN),
        "cycles": _COLUMN,
    },
    "group": {
        "parts": forms.tuple_form(forms.form_of_fixed_tuple(COUNT, COUNT, forms.WHOLE, _MANY))
    },
    "on": {"body": COUNT, "ipu": COUNT},
    "loop": {"body": COUNT, "count": COUNT, "period": COUNT},
    "tasks": {"tasks": forms.tuple_form(Form(forms.object_schema(_TASK)))},
}
NODES: dict[str, Schema] = {
    f"{name}_node": forms.object_schema(
        {"type": forms.json_form(const=name), **fields}, optional_keys=_LATER.get(name, ())
    )
    for name, fields in _FIELDS.items()
}
"""The kinds of nodes."""


def _encode_steps(steps: machine.Steps, strings: StringTable) -> dict[str, Any]:
    """Encodes the trace of steps; equal parts are written once."""
    writer = _TraceWriter(strings)
    root = writer.number_trace_node(steps.trace)
    return {"count": len(steps), "root": root, "nodes": writer.nodes}


def _decode_steps(data: Mapping[str, Any], texts: Sequence[str]) -> machine.Steps:
    """Decodes the steps that `_encode_steps` encoded.

    Raises:
      LookupError: a part that comes after the whole, or a text that is not there.
      ValueError: columns of different lengths, or another number of steps.
      InternalError: the nodes form no valid trace.
    """
    nodes: list[trace.Trace] = []
    for node in data["nodes"]:
        nodes.append(_READERS[node["type"]](node, nodes, texts))
    steps = machine.Steps(nodes[data["root"]])
    if steps.trace.num_steps != data["count"]:
        raise ValueError(f"{steps.trace.num_steps} steps, where `count` is {data['count']}")
    return steps


class _TraceWriter:
    """A writer that numbers the nodes of a trace, parts before wholes."""

    def __init__(self, strings: StringTable):
        self.nodes: list[dict[str, Any]] = []
        self._strings = strings
        self._by_identity: dict[int, int] = {}
        self._by_content: dict[str, int] = {}

    def number_trace_node(self, node: trace.Trace) -> int:
        """Returns the number of a node, adding it to the nodes if it is new."""
        if id(node) not in self._by_identity:
            data = self._encode_trace_node(node)
            number = self._by_content.setdefault(json.dumps(data), len(self.nodes))
            if number == len(self.nodes):
                self.nodes.append(data)
            self._by_identity[id(node)] = number
        return self._by_identity[id(node)]

    def _encode_trace_node(self, node: trace.Trace) -> dict[str, Any]:
        match node:
            case trace.Block():
                return self._encode_block(node)
            case trace.On():
                return {"type": "on", "body": self.number_trace_node(node.body), "ipu": node.ipu}
            case trace.Loop():
                body = self.number_trace_node(node.body)
                return {"type": "loop", "body": body, "count": node.count, "period": node.period}
            case trace.Group():
                return {"type": "group", "parts": self._encode_group_parts(node)}
            case trace.Tasks():
                return {"type": "tasks", "tasks": self._encode_tasks(node)}

    def _encode_block(self, block: trace.Block) -> dict[str, Any]:
        ipus = block.ipu.tolist()
        names, origins = (
            np.array([self._strings.number_text(text) for text in texts], dtype=np.int64)
            for texts in (block.names, block.origins)
        )
        is_gapless = np.array_equal(block.start, _starts_without_gaps(block.cycles))
        return {
            "type": "block",
            "ipu": ipus[0] if len(set(ipus)) == 1 else ipus,
            "kind": block.kind.tolist(),
            "name": names[block.name].tolist(),
            "origin": origins[block.name].tolist(),
            "operation": np.array(block.operations, dtype=np.int64)[block.name].tolist(),
            "start": None if is_gapless else block.start.tolist(),
            "cycles": block.cycles.tolist(),
        }

    def _encode_group_parts(self, group: trace.Group) -> Runs:
        """Encodes a group; equal neighbours share an entry for each run of starts."""
        children = np.array(
            [self.number_trace_node(child) for child in group.children], dtype=np.int64
        )
        boundaries = np.flatnonzero(np.diff(children)) + 1
        runs_of_child = zip(
            np.split(children, boundaries), np.split(group.offset, boundaries), strict=True
        )
        return [
            [int(child[0]), *run] for child, starts in runs_of_child for run in encode_runs(starts)
        ]

    def _encode_tasks(self, tasks: trace.Tasks) -> list[dict[str, Any]]:
        """Encodes tasks, those of one body, stage and phase together."""
        return [
            {
                "body": self.number_trace_node(tasks.bodies[body]),
                "stage": None if stage == trace.NONE else stage,
                "phase": None if phase == trace.NONE else trace.PHASES[phase],
                "places": encode_runs(indices),
                "starts": encode_runs(tasks.start[indices]),
                "micro_batches": encode_runs(tasks.micro_batch[indices]),
            }
            for (body, stage, phase), indices in group_equal_rows(
                tasks.which, tasks.stage, tasks.phase
            )
        ]


def _starts_without_gaps(cycles: np.ndarray) -> np.ndarray:
    """Returns the starts of steps that each start as the one before ends."""
    return np.cumsum(cycles) - cycles


_Data = Mapping[str, Any]
_Nodes = Sequence[trace.Trace]


def _decode_block(data: _Data, _: _Nodes, texts: Sequence[str]) -> trace.Trace:
    codes: dict[tuple[int, int, int], int] = {}
    operations = data.get("operation", [trace.NONE] * len(data["name"]))
    name_keys = zip(data["name"], data["origin"], operations, strict=True)
    name = np.array(
        [codes.setdefault(code_key, len(codes)) for code_key in name_keys], dtype=np.int32
    )
    ipu = data["ipu"] if isinstance(data["ipu"], list) else [data["ipu"]] * len(name)
    cycles = np.array(data["cycles"], dtype=np.int64)
    stored_start = data["start"]
    start = (
        _starts_without_gaps(cycles)
        if stored_start is None
        else np.array(stored_start, dtype=np.int64)
    )
    kind = np.array(data["kind"], dtype=np.uint8)
    if not len(ipu) == len(kind) == len(name) == len(start) == len(cycles):
        raise ValueError("columns of a block of different lengths")
    return trace.Block(
        ipu=np.array(ipu, dtype=np.int32),
        kind=kind,
        name=name,
        start=start,
        cycles=cycles,
        names=tuple(texts[number] for number, _, _ in codes),
        origins=tuple(texts[number] for _, number, _ in codes),
        operations=tuple(number for _, _, number in codes),
        num_steps=len(name),
        span=int((start + cycles).max(initial=0)),
    )


def _decode_group(data: _Data, nodes: _Nodes, _: Sequence[str]) -> trace.Trace:
    return trace.group_traces(
        (first + step * i, nodes[child])
        for child, first, step, count in data["parts"]
        for i in range(count)
    )


def _decode_tasks(data: _Data, nodes: _Nodes, _: Sequence[str]) -> trace.Trace:
    entries = data["tasks"]
    no_indices = np.empty(0, dtype=np.int64)
    indices_of_entry = [decode_runs(entry["places"]) for entry in entries]
    order = np.argsort(np.concatenate([no_indices, *indices_of_entry]), kind="stable")

    def expand_entry_values(value_of_entry: Sequence[int]) -> np.ndarray:
        return np.repeat(
            np.array(value_of_entry, dtype=np.int64), list(map(len, indices_of_entry))
        )[order]

    def join_entry_runs(key: str) -> np.ndarray:
        return np.concatenate([no_indices, *(decode_runs(entry[key]) for entry in entries)])[order]

    def expand_entry_key(key: str, to_number: Callable[[Any], int]) -> np.ndarray:
        return expand_entry_values(
            [trace.NONE if e[key] is None else to_number(e[key]) for e in entries]
        )

    return trace.build_tasks(
        bodies=[nodes[entry["body"]] for entry in entries],
        which=expand_entry_values(range(len(entries))),
        start=join_entry_runs("starts"),
        stage=expand_entry_key("stage", int),
        micro_batch=join_entry_runs("micro_batches"),
        phase=expand_entry_key("phase", trace.PHASES.index),
    )


_READERS: Mapping[str, Callable[[_Data, _Nodes, Sequence[str]], trace.Trace]] = {
    "block": _decode_block,
    "on": lambda data, nodes, _: trace.assign_to_ipu(nodes[data["body"]], data["ipu"]),
    "loop": lambda data, nodes, _: trace.repeat_trace(
        nodes[data["body"]], data["count"], data["period"]
    ),
    "group": _decode_group,
    "tasks": _decode_tasks,
}

_NODE = Form(forms.schema_of_alternatives(*({"$ref": f"#/$defs/{name}"} for name in NODES)))
STEPS = Form(
    forms.object_schema({"count": COUNT, "root": COUNT, "nodes": forms.tuple_form(_NODE)}),
    _encode_steps,
    _decode_steps,
)
