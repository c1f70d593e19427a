"""The sections of a document, as forms: all that a report says but its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np

from ipujax.host_trace import HostSpan, HostTrace
from ipujax.report.advice.findings import Advice, Cost
from ipujax.report.excerpts import Excerpt
from ipujax.report.presentation.document import forms, runs
from ipujax.report.presentation.document.forms import COUNT, REAL, TEXT, WORD, Form, Strings
from lowering import machine

COST = forms.record(Cost, forms.derived(Cost, cycles=forms.POSITIVE), later=("name",))
_LATER = ("enough", "fullest_bytes")
ADVICE = forms.record(Advice, forms.derived(Advice, about_bytes=forms.WHOLE), later=_LATER)
HOST = forms.record(
    HostTrace,
    {"spans": forms.columns(HostSpan, forms.derived(HostSpan, kind=WORD, name=WORD, thread=WORD))},
)

SOURCES = forms.listed(forms.record(Excerpt, forms.derived(Excerpt)))

# --- the chip: what it can be is the business of `ipu.targets.Target` --------------------------

_RATES = forms.listed(forms.in_order(TEXT, TEXT, forms.WHOLE)).via(
    lambda rates: [[*pair, rate] for pair, rate in rates],
    lambda rows: tuple(((inputs, partials), rate) for inputs, partials, rate in rows),
)
_LINKS = forms.record(
    machine.Links,
    forms.derived(machine.Links, REAL),
    later=("gateway_bytes_per_second", "ipus_of_gateway"),
)
TARGET = forms.record(
    machine.Target,
    forms.derived(machine.Target, REAL, macs_per_cycle=_RATES, amp_units=_RATES, links=_LINKS),
)

# --- what the cycles go to ---------------------------------------------------------------------

_CAUSES: forms.Forms = {cause: forms.ARRAY for cause in machine.CAUSES}
BREAKDOWN = Form(
    forms.described(_CAUSES),
    forms.mapped(forms.ARRAY).encode,
    lambda data, texts: {key: form.decode(data[key], texts) for key, form in _CAUSES.items()},
)

# --- memory: how full each tile is, of what, and what a tile can hold --------------------------


def _by_ipu(categories: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """For each IPU what any of its tiles holds."""
    every = zip(*categories.values(), strict=True)
    return [{k: b for k, b in zip(categories, held, strict=True) if b.any()} for held in every]


def _memory(
    tile_peak_bytes: Sequence[np.ndarray],
    tile_categories: Sequence[Mapping[str, np.ndarray]],
    **others: Any,
) -> machine.Memory:
    peaks = np.stack(tile_peak_bytes)
    categories = {name: np.zeros_like(peaks) for name in machine.CATEGORIES}
    for ipu, held in zip(range(len(peaks)), tile_categories, strict=True):
        for name, bytes_ in held.items():
            if len(bytes_) != peaks.shape[1]:
                raise ValueError(f"{len(bytes_)} of {peaks.shape[1]} tiles")
            categories[name][ipu] = bytes_
    return machine.Memory(tile_peak_bytes=peaks, tile_categories=categories, **others)


_TENSOR = forms.derived(machine.Tensor, category=forms.one_of(machine.CATEGORIES))
_ALL = {"required": list(machine.CATEGORIES)}
_TILE = {"ipu": COUNT, "tile": COUNT}
_WORST = Form(forms.described(_TILE), lambda tile, _: dict(zip(_TILE, tile, strict=True)))
MEMORY = forms.record(
    _memory,
    {
        "fits": forms.told(forms.FLAG),
        "limit": COUNT,
        "missing_bytes": forms.told(COUNT),
        "worst": forms.told(_WORST),
        "most_code_bytes": COUNT,
        "code_limit": COUNT,
        "tile_peak_bytes": forms.listed(forms.REPEATS),
        "tile_categories": forms.listed(forms.mapped(forms.REPEATS)).via(_by_ipu, list),
        "always_live_bytes": forms.ARRAY,
        "peak_bytes": forms.ARRAY,
        "remote_bytes": forms.ARRAY,
        "by_category": forms.told(forms.mapped(COUNT, **_ALL)),
        "ipu_categories": forms.told(forms.mapped(forms.ARRAY, **_ALL)),
        "biggest": forms.listed(forms.record(machine.Tensor, _TENSOR, later=("path",))),
    },
)

# --- liveness: what is there at which step, for each IPU ---------------------------------------

_STEPS = forms.record(
    dict,
    {
        "name": forms.listed(WORD).of("names"),
        "origin": forms.listed(WORD).of("origins"),
        "operation": forms.listed(forms.OR_NONE).of("operations"),
        "bytes": forms.ARRAY,
        "temporary": forms.ARRAY.of("temporary_bytes"),
    },
    later=("operation",),
)


def _tensors(mapping: Form) -> Form:
    """Tensors, of which `mapping` says how they lie."""
    tensor = {
        **dict.fromkeys(("name", "category", "operation", "origin"), WORD),
        "bytes": forms.told(COUNT.of("total_bytes")),
        **dict.fromkeys(("first", "last"), forms.OR_NONE),
        "mapping": mapping,
        "value": forms.OR_NONE,
        "path": WORD,
    }
    return forms.columns(machine.Lifetime, tensor, later=("path",))


def _encode_held(held: machine.Liveness, strings: Strings) -> dict[str, Any]:
    """Ways to lie are there once, those of equal bytes alike."""
    numbers: dict[machine.OnTiles, int] = {}
    contents: dict[bytes, int] = {}

    def number(mapping: machine.OnTiles, _: Strings) -> int:
        if mapping not in numbers:
            content = mapping.bytes_per_tile().tobytes()
            numbers[mapping] = contents.setdefault(content, len(contents))
        return numbers[mapping]

    steps = _STEPS.encode(held, strings)
    tensors = _tensors(Form({}, number)).encode(held.tensors, strings)
    mappings = [runs.repeats(np.frombuffer(content, dtype=np.int64)) for content in contents]
    return {"worst": held.worst, "steps": steps, "tensors": tensors, "mappings": mappings}


def _decode_held(data: Mapping[str, Any], texts: Sequence[str]) -> machine.Liveness:
    mappings = [machine.TileBytes(runs.from_repeats(each)) for each in data["mappings"]]
    steps: dict[str, Any] = {"operations": [None] * len(data["steps"]["name"])}
    steps.update(_STEPS.decode(data["steps"], texts))
    if len(set(map(len, steps.values()))) > 1:
        raise ValueError("columns of steps of different lengths")
    mapping = Form({}, decode=lambda number, _: mappings[number])
    return machine.Liveness(**steps, tensors=_tensors(mapping).decode(data["tensors"], texts))


_HELD = {
    "worst": COUNT,
    "steps": _STEPS,
    "tensors": _tensors(COUNT),
    "mappings": forms.listed(forms.REPEATS),
}
LIVENESS = forms.listed(Form(forms.described(_HELD), _encode_held, _decode_held))

# --- the program tree as columns of nodes ------------------------------------------------------


def _kind(text: str) -> str:
    if text not in get_args(machine.NodeKind):
        raise ValueError(f"there is no node of kind {text!r}")
    return text


_NODE = {
    "kind": WORD.via(str, _kind),
    "name": WORD,
    "origin": WORD,
    "ipu": forms.OR_NONE,  # of what concerns several or none
    "count": COUNT,
    "cycles": COUNT,
    "operation": forms.OR_NONE,
    "children": forms.listed(COUNT),
}
_NODES = forms.columns(dict, _NODE, later=("operation",))


def _encode_tree(root: machine.ProgramNode, strings: Strings) -> dict[str, list[Any]]:
    """Nodes in an order in which parts come first; equal ones are there once."""
    rows: dict[tuple[Any, ...], int] = {}
    known: dict[int, int] = {}
    *own, _ = _NODE.items()

    def number(node: machine.ProgramNode) -> int:
        if id(node) not in known:
            row = [form.encode(getattr(node, key), strings) for key, form in own]
            children = tuple(map(number, node.children))
            known[id(node)] = rows.setdefault((*row, children), len(rows))
        return known[id(node)]

    number(root)
    columns = dict(zip(_NODE, map(list, zip(*rows, strict=True)), strict=True))
    return {**columns, "children": list(map(list, columns["children"]))}


def _decode_tree(data: Mapping[str, Any], texts: Sequence[str]) -> machine.ProgramNode:
    nodes: list[machine.ProgramNode] = []
    for row in _NODES.decode(data, texts):
        children = tuple([nodes[child] for child in row.pop("children")])
        nodes.append(machine.ProgramNode(**row, children=children))
    return nodes[-1]


PROGRAM = Form(_NODES.schema, _encode_tree, _decode_tree)

_VERTICES = forms.listed(Form(forms.described({"kind": TEXT, "count": COUNT}))).via(
    lambda vertices: [{"kind": kind, "count": count} for kind, count in vertices.items()],
    lambda entries: {entry["kind"]: entry["count"] for entry in entries},
)
GRAPH = forms.record(machine.Graph, {"compute_sets": COUNT, "vertices": _VERTICES, "edges": COUNT})

# --- where the cycles go, by operation, and how a pipeline fills its IPUs ----------------------

_SOURCE = forms.one_of(["formula", "default"])
_OPERATION = forms.derived(
    machine.OperationTotal,
    source=_SOURCE,
    call_path=forms.listed(WORD),
    direction=forms.or_null(forms.one_of(machine.DIRECTIONS)),
    number=forms.plain(type="integer", minimum=-1),
)
_SINCE = ("scope", "call_path", "direction", "number", "label")
OPERATIONS = forms.listed(forms.record(machine.OperationTotal, _OPERATION, later=_SINCE))

_TASK = {"stage": COUNT, "phase": forms.one_of(machine.TASK_PHASES)}
_CYCLES = forms.listed(Form(forms.described({**_TASK, "cycles": forms.POSITIVE}))).via(
    lambda cycles: [{"stage": s, "phase": p, "cycles": n} for (s, p), n in cycles.items()],
    lambda entries: {(entry["stage"], entry["phase"]): entry["cycles"] for entry in entries},
)


class _Tasks(NamedTuple):
    """Tasks of one stage and phase, in the order of their ticks."""

    stage: int
    phase: str
    ticks: np.ndarray
    micro_batches: np.ndarray


def _tasks(grid: machine.Grid) -> list[_Tasks]:
    return [
        _Tasks(stage, machine.TASK_PHASES[phase], grid.tick[own], grid.micro_batch[own])
        for (stage, phase), own in runs.alike(grid.stage, grid.phase)
    ]


def _grid(found: Sequence[_Tasks]) -> machine.Grid:
    parts = [np.empty((4, 0), dtype=np.int64)]
    for tasks in found:
        stage = np.full_like(tasks.ticks, tasks.stage)
        phase = np.full_like(tasks.ticks, machine.TASK_PHASES.index(tasks.phase))
        parts.append(np.stack([stage, phase, tasks.micro_batches, tasks.ticks]))
    return machine.Grid.of(*np.concatenate(parts, axis=1))


_TASKS = forms.record(_Tasks, {**_TASK, "ticks": forms.RUNS, "micro_batches": forms.RUNS})
PIPELINE = forms.record(
    machine.PipelineProfile,
    {
        "schedule": TEXT,
        **dict.fromkeys(("stages", "micro_batches", "ticks"), COUNT),
        "bubble_fraction": forms.SHARE,
        "utilisation": forms.POSITIVE,
        "cycles": COUNT,
        "tick_cycles": forms.REPEATS,
        "stage_cycles": _CYCLES,
        "stage_ipus": forms.listed(forms.listed(COUNT)),
        "tasks": forms.listed(_TASKS).via(_tasks, _grid).of("grid"),
    },
)
