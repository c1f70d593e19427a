"""What each IPU does when: the tree of a trace as a list of nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ipujax.report.presentation.document import forms
from ipujax.report.presentation.document.forms import COUNT, Form, Schema, Strings
from ipujax.report.presentation.document.runs import Runs, alike, from_runs, runs
from lowering import machine, trace

_KIND = forms.plain(type="integer", minimum=0, maximum=len(trace.KINDS) - 1)
_MANY = forms.plain(**{**forms.MANY.schema, "maximum": 10**6})
_COLUMN = forms.listed(COUNT)
_NUMBER = forms.plain(type="integer", minimum=trace.NONE)
_LATER = {"block": ("operation",)}
_TASK = {
    "body": COUNT,
    "stage": forms.or_null(COUNT),
    "phase": forms.or_null(forms.one_of(trace.PHASES)),
    **dict.fromkeys(("places", "starts", "micro_batches"), forms.RUNS),
}
_FIELDS: Mapping[str, forms.Forms] = {
    "block": {
        "ipu": Form(forms.either(COUNT.schema, _COLUMN.schema)),
        "kind": forms.listed(_KIND),
        "name": _COLUMN,
        "origin": _COLUMN,
        "operation": forms.listed(_NUMBER),
        "start": forms.or_null(_COLUMN),
        "cycles": _COLUMN,
    },
    "group": {"parts": forms.listed(forms.in_order(COUNT, COUNT, forms.WHOLE, _MANY))},
    "on": {"body": COUNT, "ipu": COUNT},
    "loop": {"body": COUNT, "count": COUNT, "period": COUNT},
    "tasks": {"tasks": forms.listed(Form(forms.described(_TASK)))},
}
NODES: dict[str, Schema] = {
    f"{name}_node": forms.described(
        {"type": forms.plain(const=name), **fields}, later=_LATER.get(name, ())
    )
    for name, fields in _FIELDS.items()
}
"""The kinds of nodes."""


def _encode(steps: machine.Steps, strings: Strings) -> dict[str, Any]:
    """The trace behind steps; equal parts are there once."""
    writer = _Writer(strings)
    root = writer.number(steps.trace)
    return {"count": len(steps), "root": root, "nodes": writer.nodes}


def _decode(data: Mapping[str, Any], texts: Sequence[str]) -> machine.Steps:
    """The steps that `encode` wrote.

    Raises:
      LookupError: a part that comes after the whole, or a text that is not there.
      ValueError: columns of different lengths, or another number of steps.
      InternalError: what is no trace.
    """
    nodes: list[trace.Trace] = []
    for node in data["nodes"]:
        nodes.append(_READERS[node["type"]](node, nodes, texts))
    steps = machine.Steps(nodes[data["root"]])
    if steps.trace.num_steps != data["count"]:
        raise ValueError(f"{steps.trace.num_steps} steps, where `count` is {data['count']}")
    return steps


class _Writer:
    """Numbers nodes, parts before wholes."""

    def __init__(self, strings: Strings):
        self.nodes: list[dict[str, Any]] = []
        self._strings = strings
        self._by_identity: dict[int, int] = {}
        self._by_content: dict[str, int] = {}

    def number(self, node: trace.Trace) -> int:
        """Of a node that is or will be among the nodes."""
        if id(node) not in self._by_identity:
            data = self._data(node)
            number = self._by_content.setdefault(json.dumps(data), len(self.nodes))
            if number == len(self.nodes):
                self.nodes.append(data)
            self._by_identity[id(node)] = number
        return self._by_identity[id(node)]

    def _data(self, node: trace.Trace) -> dict[str, Any]:
        match node:
            case trace.Block():
                return self._block(node)
            case trace.On():
                return {"type": "on", "body": self.number(node.body), "ipu": node.ipu}
            case trace.Loop():
                body = self.number(node.body)
                return {"type": "loop", "body": body, "count": node.count, "period": node.period}
            case trace.Group():
                return {"type": "group", "parts": self._parts(node)}
            case trace.Tasks():
                return {"type": "tasks", "tasks": self._tasks(node)}

    def _block(self, block: trace.Block) -> dict[str, Any]:
        ipus = block.ipu.tolist()
        names, origins = (
            np.array([self._strings.number(text) for text in texts], dtype=np.int64)
            for texts in (block.names, block.origins)
        )
        gapless = np.array_equal(block.start, _after_each_other(block.cycles))
        return {
            "type": "block",
            "ipu": ipus[0] if len(set(ipus)) == 1 else ipus,
            "kind": block.kind.tolist(),
            "name": names[block.name].tolist(),
            "origin": origins[block.name].tolist(),
            "operation": np.array(block.operations, dtype=np.int64)[block.name].tolist(),
            "start": None if gapless else block.start.tolist(),
            "cycles": block.cycles.tolist(),
        }

    def _parts(self, group: trace.Group) -> Runs:
        """Neighbours that are the same node share an entry for each run of their starts."""
        children = np.array([self.number(child) for child in group.children], dtype=np.int64)
        cuts = np.flatnonzero(np.diff(children)) + 1
        same = zip(np.split(children, cuts), np.split(group.offset, cuts), strict=True)
        return [[int(child[0]), *run] for child, starts in same for run in runs(starts)]

    def _tasks(self, tasks: trace.Tasks) -> list[dict[str, Any]]:
        """Tasks of one body, stage and phase together."""
        return [
            {
                "body": self.number(tasks.bodies[which]),
                "stage": None if stage == trace.NONE else stage,
                "phase": None if phase == trace.NONE else trace.PHASES[phase],
                "places": runs(places),
                "starts": runs(tasks.start[places]),
                "micro_batches": runs(tasks.micro_batch[places]),
            }
            for (which, stage, phase), places in alike(tasks.which, tasks.stage, tasks.phase)
        ]


def _after_each_other(cycles: np.ndarray) -> np.ndarray:
    """When steps start, each of which starts as the one before it ends."""
    return np.cumsum(cycles) - cycles


_Data = Mapping[str, Any]
_Nodes = Sequence[trace.Trace]


def _read_block(data: _Data, _: _Nodes, texts: Sequence[str]) -> trace.Trace:
    codes: dict[tuple[int, int, int], int] = {}
    operations = data.get("operation", [trace.NONE] * len(data["name"]))
    called = zip(data["name"], data["origin"], operations, strict=True)
    name = np.array([codes.setdefault(each, len(codes)) for each in called], dtype=np.int32)
    ipu = data["ipu"] if isinstance(data["ipu"], list) else [data["ipu"]] * len(name)
    cycles = np.array(data["cycles"], dtype=np.int64)
    given = data["start"]
    start = _after_each_other(cycles) if given is None else np.array(given, dtype=np.int64)
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


def _read_group(data: _Data, nodes: _Nodes, _: Sequence[str]) -> trace.Trace:
    return trace.group(
        (first + step * i, nodes[child])
        for child, first, step, count in data["parts"]
        for i in range(count)
    )


def _read_tasks(data: _Data, nodes: _Nodes, _: Sequence[str]) -> trace.Trace:
    entries = data["tasks"]
    none = np.empty(0, dtype=np.int64)
    places = [from_runs(entry["places"]) for entry in entries]
    order = np.argsort(np.concatenate([none, *places]), kind="stable")

    def column(each: Sequence[int]) -> np.ndarray:
        return np.repeat(np.array(each, dtype=np.int64), list(map(len, places)))[order]

    def joined(key: str) -> np.ndarray:
        return np.concatenate([none, *(from_runs(entry[key]) for entry in entries)])[order]

    def known(key: str, number: Callable[[Any], int]) -> np.ndarray:
        return column([trace.NONE if e[key] is None else number(e[key]) for e in entries])

    return trace.tasks(
        bodies=[nodes[entry["body"]] for entry in entries],
        which=column(range(len(entries))),
        start=joined("starts"),
        stage=known("stage", int),
        micro_batch=joined("micro_batches"),
        phase=known("phase", trace.PHASES.index),
    )


_READERS: Mapping[str, Callable[[_Data, _Nodes, Sequence[str]], trace.Trace]] = {
    "block": _read_block,
    "on": lambda data, nodes, _: trace.on(nodes[data["body"]], data["ipu"]),
    "loop": lambda data, nodes, _: trace.loop(nodes[data["body"]], data["count"], data["period"]),
    "group": _read_group,
    "tasks": _read_tasks,
}

_NODE = Form(forms.either(*({"$ref": f"#/$defs/{name}"} for name in NODES)))
STEPS = Form(
    forms.described({"count": COUNT, "root": COUNT, "nodes": forms.listed(_NODE)}),
    _encode,
    _decode,
)
