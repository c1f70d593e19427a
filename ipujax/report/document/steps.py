"""What each IPU does when: the tree of a trace as a list of nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ipujax.report.document.runs import Runs, from_runs, runs
from ipujax.report.document.strings import Strings
from lowering import machine, trace


def encode(steps: machine.Steps, strings: Strings) -> dict[str, Any]:
    """The trace behind steps; equal parts are there once."""
    writer = _Writer(strings)
    root = writer.number(steps.trace)
    return {"count": len(steps), "root": root, "nodes": writer.nodes}


def decode(data: Mapping[str, Any], texts: Sequence[str]) -> machine.Steps:
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
            content = json.dumps(data)
            if content not in self._by_content:
                self._by_content[content] = len(self.nodes)
                self.nodes.append(data)
            self._by_identity[id(node)] = self._by_content[content]
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
        names = np.array([self._strings.number(name) for name in block.names], dtype=np.int64)
        lines = np.array([self._strings.number(line) for line in block.origins], dtype=np.int64)
        return {
            "type": "block",
            "ipu": ipus[0] if len(set(ipus)) == 1 else ipus,
            "kind": block.kind.tolist(),
            "name": names[block.name].tolist(),
            "origin": lines[block.name].tolist(),
            "start": None if _is_gapless(block) else block.start.tolist(),
            "cycles": block.cycles.tolist(),
        }

    def _parts(self, group: trace.Group) -> Runs:
        """Neighbours that are the same node share an entry for each run of their starts."""
        children = np.array([self.number(child) for child in group.children], dtype=np.int64)
        cuts = np.flatnonzero(np.diff(children)) + 1
        starts = np.split(group.offset, cuts)
        firsts = [int(each[0]) for each in np.split(children, cuts)] if len(children) else []
        pairs = zip(firsts, starts, strict=False)
        return [[child, *run] for child, own in pairs for run in runs(own)]

    def _tasks(self, tasks: trace.Tasks) -> list[dict[str, Any]]:
        """Tasks of one body, stage and phase together."""
        keys = np.stack([tasks.which, tasks.stage, tasks.phase.astype(np.int32)])
        kinds, member = np.unique(keys, axis=1, return_inverse=True)
        found: list[dict[str, Any]] = []
        for i, (which, stage, phase) in enumerate(kinds.T.tolist()):
            own = np.flatnonzero(member.reshape(-1) == i)
            found.append(
                {
                    "body": self.number(tasks.bodies[which]),
                    "stage": None if stage == trace.NONE else stage,
                    "phase": None if phase == trace.NONE else trace.PHASES[phase],
                    "places": runs(own),
                    "starts": runs(tasks.start[own]),
                    "micro_batches": runs(tasks.micro_batch[own]),
                }
            )
        return found


def _is_gapless(block: trace.Block) -> bool:
    return np.array_equal(block.start, _after_each_other(block.cycles))


def _after_each_other(cycles: np.ndarray) -> np.ndarray:
    """When steps start, each of which starts as the one before it ends."""
    return np.cumsum(cycles) - cycles


_Nodes = Sequence[trace.Trace]
_Data = Mapping[str, Any]


def _read_block(data: _Data, nodes: _Nodes, texts: Sequence[str]) -> trace.Trace:
    codes: dict[tuple[int, int], int] = {}
    pairs = zip(data["name"], data["origin"], strict=True)
    name = np.array([codes.setdefault(pair, len(codes)) for pair in pairs], dtype=np.int32)
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
        names=tuple(texts[number] for number, _ in codes),
        origins=tuple(texts[number] for _, number in codes),
        num_steps=len(name),
        span=int((start + cycles).max(initial=0)),
    )


def _read_on(data: _Data, nodes: _Nodes, texts: Sequence[str]) -> trace.Trace:
    return trace.on(nodes[data["body"]], data["ipu"])


def _read_loop(data: _Data, nodes: _Nodes, texts: Sequence[str]) -> trace.Trace:
    return trace.loop(nodes[data["body"]], data["count"], data["period"])


def _read_group(data: _Data, nodes: _Nodes, texts: Sequence[str]) -> trace.Trace:
    return trace.group(
        (first + step * i, nodes[child])
        for child, first, step, count in data["parts"]
        for i in range(count)
    )


def _read_tasks(data: _Data, nodes: _Nodes, texts: Sequence[str]) -> trace.Trace:
    places = [from_runs(entry["places"]) for entry in data["tasks"]]
    order = np.argsort(np.concatenate([np.empty(0, dtype=np.int64), *places]), kind="stable")
    counts = [len(own) for own in places]

    def column(each: Sequence[int]) -> np.ndarray:
        return np.repeat(np.array(each, dtype=np.int64), counts)[order]

    def joined(key: str) -> np.ndarray:
        parts = [from_runs(entry[key]) for entry in data["tasks"]]
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])[order]

    stages, phases = ([entry[key] for entry in data["tasks"]] for key in ("stage", "phase"))
    return trace.tasks(
        bodies=[nodes[entry["body"]] for entry in data["tasks"]],
        which=column(range(len(counts))),
        start=joined("starts"),
        stage=column([trace.NONE if stage is None else stage for stage in stages]),
        micro_batch=joined("micro_batches"),
        phase=column(
            [trace.NONE if phase is None else trace.PHASES.index(phase) for phase in phases]
        ),
    )


_READERS = {
    "block": _read_block,
    "on": _read_on,
    "loop": _read_loop,
    "group": _read_group,
    "tasks": _read_tasks,
}
