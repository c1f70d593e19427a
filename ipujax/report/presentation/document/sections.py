"""The sections of a document as forms: all parts of a report except its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np

from ipujax.ground import HostSpan, HostTrace
from ipujax.report.advice.findings import Advice, Cost
from ipujax.report.device_meshes import DeviceMesh
from ipujax.report.excerpts import Excerpt
from ipujax.report.presentation.document import forms, runs
from ipujax.report.presentation.document.forms import COUNT, REAL, TEXT, WORD, Form, StringTable
from lowering import machine

COST = forms.object_form(
    Cost, forms.forms_of_fields(Cost, cycles=forms.POSITIVE), optional_keys=("name",)
)
_LATER = ("enough", "fullest_bytes")
ADVICE = forms.object_form(
    Advice, forms.forms_of_fields(Advice, about_bytes=forms.WHOLE), optional_keys=_LATER
)
HOST = forms.object_form(
    HostTrace,
    {
        "spans": forms.columns_form(
            HostSpan, forms.forms_of_fields(HostSpan, kind=WORD, name=WORD, thread=WORD)
        )
    },
)

SOURCES = forms.tuple_form(forms.object_form(Excerpt, forms.forms_of_fields(Excerpt)))

_MESH = forms.forms_of_fields(
    DeviceMesh,
    axes=forms.tuple_form(TEXT),
    sizes=forms.tuple_form(forms.MANY),
    devices=forms.tuple_form(TEXT),
)
MESHES = forms.tuple_form(forms.object_form(DeviceMesh, _MESH))

# --- the chip: `ipu.targets.Target` checks its values --------------------------------------------

_RATES = forms.tuple_form(forms.form_of_fixed_tuple(TEXT, TEXT, forms.WHOLE)).with_conversion(
    lambda rates: [[*pair, rate] for pair, rate in rates],
    lambda rows: tuple(((inputs, partials), rate) for inputs, partials, rate in rows),
)
_LINKS = forms.object_form(
    machine.Links,
    forms.forms_of_fields(machine.Links, REAL),
    optional_keys=("gateway_bytes_per_second", "ipus_of_gateway"),
)
TARGET = forms.object_form(
    machine.Target,
    forms.forms_of_fields(
        machine.Target, REAL, macs_per_cycle=_RATES, amp_units=_RATES, links=_LINKS
    ),
)

# --- the causes of cycles ------------------------------------------------------------------------

_CAUSES: forms.Forms = {cause: forms.ARRAY for cause in machine.CAUSES}
_LATER_CAUSE = "streaming memory"  # a part of "host" in reports of earlier versions


def _decode_breakdown(data: Mapping[str, Any], texts: Sequence[str]) -> Mapping[str, np.ndarray]:
    found = {
        cause: form.decode(data[cause], texts) for cause, form in _CAUSES.items() if cause in data
    }
    none = np.zeros_like(found["host"])
    return {cause: found.get(cause, none) for cause in machine.CAUSES}


BREAKDOWN = Form(
    forms.object_schema(_CAUSES, optional_keys=(_LATER_CAUSE,)),
    forms.dict_form(forms.ARRAY).encode,
    _decode_breakdown,
)

# --- memory: the bytes on each tile by category, and a tile's limit ------------------------------


def _categories_by_ipu(categories: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Returns for each IPU the bytes per tile of the categories that any of its tiles holds."""
    bytes_of_ipus = zip(*categories.values(), strict=True)
    return [
        {k: b for k, b in zip(categories, tile_bytes, strict=True) if b.any()}
        for tile_bytes in bytes_of_ipus
    ]


def _build_memory(
    tile_peak_bytes: Sequence[np.ndarray],
    tile_categories: Sequence[Mapping[str, np.ndarray]],
    **memory_fields: Any,
) -> machine.Memory:
    peaks = np.stack(tile_peak_bytes)
    categories = {name: np.zeros_like(peaks) for name in machine.CATEGORIES}
    for ipu, bytes_of_category in zip(range(len(peaks)), tile_categories, strict=True):
        for name, bytes_ in bytes_of_category.items():
            if len(bytes_) != peaks.shape[1]:
                raise ValueError(f"{len(bytes_)} of {peaks.shape[1]} tiles")
            categories[name][ipu] = bytes_
    return machine.Memory(tile_peak_bytes=peaks, tile_categories=categories, **memory_fields)


_TENSOR = forms.forms_of_fields(machine.Tensor, category=forms.enum_form(machine.CATEGORIES))
_LATER_TEXTS = ("path", "label", "scope")  # not in reports of earlier versions
_ALL = {"required": list(machine.CATEGORIES)}
_TILE = {"ipu": COUNT, "tile": COUNT}
_WORST = Form(forms.object_schema(_TILE), lambda tile, _: dict(zip(_TILE, tile, strict=True)))
MEMORY = forms.object_form(
    _build_memory,
    {
        "fits": forms.mark_write_only(forms.FLAG),
        "limit": COUNT,
        "missing_bytes": forms.mark_write_only(COUNT),
        "worst": forms.mark_write_only(_WORST),
        "most_code_bytes": COUNT,
        "code_limit": COUNT,
        "tile_peak_bytes": forms.tuple_form(forms.REPEATS),
        "tile_categories": forms.tuple_form(forms.dict_form(forms.REPEATS)).with_conversion(
            _categories_by_ipu, list
        ),
        "always_live_bytes": forms.ARRAY,
        "peak_bytes": forms.ARRAY,
        "remote_bytes": forms.ARRAY,
        "by_category": forms.mark_write_only(forms.dict_form(COUNT, **_ALL)),
        "ipu_categories": forms.mark_write_only(forms.dict_form(forms.ARRAY, **_ALL)),
        "biggest": forms.tuple_form(
            forms.object_form(machine.Tensor, _TENSOR, optional_keys=_LATER_TEXTS)
        ),
    },
)

# --- liveness: the tensors alive at each step, for each IPU --------------------------------------

_STEPS = forms.object_form(
    dict,
    {
        "name": forms.tuple_form(WORD).from_attribute("names"),
        "origin": forms.tuple_form(WORD).from_attribute("origins"),
        "operation": forms.tuple_form(forms.OR_NONE).from_attribute("operations"),
        "bytes": forms.ARRAY,
        "temporary": forms.ARRAY.from_attribute("temporary_bytes"),
    },
    optional_keys=("operation",),
)


def _tensors_form(mapping: Form) -> Form:
    """Returns the form of tensors whose tile mapping has the form `mapping`."""
    tensor = {
        **dict.fromkeys(("name", "category", "operation", "origin"), WORD),
        "bytes": forms.mark_write_only(COUNT.from_attribute("total_bytes")),
        **dict.fromkeys(("first", "last"), forms.OR_NONE),
        "mapping": mapping,
        "value": forms.OR_NONE,
        **dict.fromkeys(_LATER_TEXTS, WORD),
    }
    return forms.columns_form(machine.Lifetime, tensor, optional_keys=_LATER_TEXTS)


def _encode_liveness(liveness: machine.Liveness, strings: StringTable) -> dict[str, Any]:
    """Encodes liveness; tile mappings with equal bytes are written once."""
    numbers: dict[machine.OnTiles, int] = {}
    contents: dict[bytes, int] = {}

    def number_mapping(mapping: machine.OnTiles, _: StringTable) -> int:
        if mapping not in numbers:
            content = mapping.bytes_per_tile().tobytes()
            numbers[mapping] = contents.setdefault(content, len(contents))
        return numbers[mapping]

    steps = _STEPS.encode(liveness, strings)
    tensors = _tensors_form(Form({}, number_mapping)).encode(liveness.tensors, strings)
    mappings = [runs.encode_repeats(np.frombuffer(content, dtype=np.int64)) for content in contents]
    return {"worst": liveness.worst, "steps": steps, "tensors": tensors, "mappings": mappings}


def _decode_liveness(data: Mapping[str, Any], texts: Sequence[str]) -> machine.Liveness:
    mappings = [machine.TileBytes(runs.decode_repeats(repeats)) for repeats in data["mappings"]]
    steps: dict[str, Any] = {"operations": [None] * len(data["steps"]["name"])}
    steps.update(_STEPS.decode(data["steps"], texts))
    if len(set(map(len, steps.values()))) > 1:
        raise ValueError("columns of steps of different lengths")
    mapping = Form({}, decode=lambda number, _: mappings[number])
    return machine.Liveness(**steps, tensors=_tensors_form(mapping).decode(data["tensors"], texts))


_HELD = {
    "worst": COUNT,
    "steps": _STEPS,
    "tensors": _tensors_form(COUNT),
    "mappings": forms.tuple_form(forms.REPEATS),
}
LIVENESS = forms.tuple_form(Form(forms.object_schema(_HELD), _encode_liveness, _decode_liveness))

# --- the program tree as columns of nodes ------------------------------------------------------


def _check_node_kind(text: str) -> str:
    if text not in get_args(machine.NodeKind):
        raise ValueError(f"there is no node of kind {text!r}")
    return text


_NODE = {
    "kind": WORD.with_conversion(str, _check_node_kind),
    "name": WORD,
    "origin": WORD,
    "ipu": forms.OR_NONE,  # None for nodes of several IPUs or of none
    "count": COUNT,
    "cycles": COUNT,
    "operation": forms.OR_NONE,
    "children": forms.tuple_form(COUNT),
}
_NODES = forms.columns_form(dict, _NODE, optional_keys=("operation",))


def _encode_tree(root: machine.ProgramNode, strings: StringTable) -> dict[str, list[Any]]:
    """Encodes a program tree as columns, children first; equal nodes are written once."""
    rows: dict[tuple[Any, ...], int] = {}
    number_of_node: dict[int, int] = {}
    *fields, _ = _NODE.items()

    def number_program_node(node: machine.ProgramNode) -> int:
        if id(node) not in number_of_node:
            row = [form.encode(getattr(node, key), strings) for key, form in fields]
            children = tuple(map(number_program_node, node.children))
            number_of_node[id(node)] = rows.setdefault((*row, children), len(rows))
        return number_of_node[id(node)]

    number_program_node(root)
    columns = dict(zip(_NODE, map(list, zip(*rows, strict=True)), strict=True))
    return {**columns, "children": list(map(list, columns["children"]))}


def _decode_tree(data: Mapping[str, Any], texts: Sequence[str]) -> machine.ProgramNode:
    nodes: list[machine.ProgramNode] = []
    for row in _NODES.decode(data, texts):
        children = tuple([nodes[child] for child in row.pop("children")])
        nodes.append(machine.ProgramNode(**row, children=children))
    return nodes[-1]


PROGRAM = Form(_NODES.schema, _encode_tree, _decode_tree)

_VERTICES = forms.tuple_form(
    Form(forms.object_schema({"kind": TEXT, "count": COUNT}))
).with_conversion(
    lambda vertices: [{"kind": kind, "count": count} for kind, count in vertices.items()],
    lambda entries: {entry["kind"]: entry["count"] for entry in entries},
)
GRAPH = forms.object_form(
    machine.Graph, {"compute_sets": COUNT, "vertices": _VERTICES, "edges": COUNT}
)

# --- where the cycles go, by operation, and how a pipeline fills its IPUs ----------------------

_SOURCE = forms.enum_form(["formula", "default"])
_OPERATION = forms.forms_of_fields(
    machine.OperationTotal,
    source=_SOURCE,
    call_path=forms.tuple_form(WORD),
    direction=forms.optional_form(forms.enum_form(machine.DIRECTIONS)),
    number=forms.json_form(type="integer", minimum=-1),
)
_SINCE = (
    *("scope", "call_path", "direction", "number", "label"),
    *("exchange_bytes", "remote_bytes", "units"),
)
OPERATIONS = forms.tuple_form(
    forms.object_form(machine.OperationTotal, _OPERATION, optional_keys=_SINCE)
)


def _tile_form(cls: type, fields: forms.Forms, *per_tile: str) -> Form:
    """Returns the form of objects with some fields, and others that have a number for each tile."""
    numbers = dict.fromkeys(per_tile, forms.REPEATS)
    return forms.tuple_form(forms.object_form(cls, {**fields, **numbers}))


_TILE_STEP = {"name": WORD, **dict.fromkeys(("ipu", "runs", "cycles"), COUNT)}
_TILE_BYTES = ("received_bytes", "sent_bytes")
TILE_ACTIVITY = forms.object_form(
    machine.TileActivity,
    {
        "totals": _tile_form(machine.TileTotals, {"ipu": COUNT}, "cycles", *_TILE_BYTES),
        "compute_sets": _tile_form(machine.ComputeSet, _TILE_STEP, "vertices", "tile_cycles"),
        "exchanges": _tile_form(machine.Exchange, _TILE_STEP, *_TILE_BYTES),
    },
)

_ROOF = forms.forms_of_fields(
    machine.Roof, resource=forms.enum_form(get_args(machine.Resource)), per_second=forms.POSITIVE
)
_POINT = {
    **dict.fromkeys(("number", "ipu"), COUNT),
    **dict.fromkeys(("exchange_bytes", "flops_per_second", "roof"), forms.POSITIVE),
    "units": TEXT,
    "bound": TEXT,
}
ROOFLINE = forms.mark_write_only(
    forms.object_form(
        machine.Roofline,
        {
            "roofs": forms.tuple_form(forms.object_form(machine.Roof, _ROOF)),
            "points": forms.columns_form(machine.RooflinePoint, _POINT),
        },
    )
)

_TASK = {"stage": COUNT, "phase": forms.enum_form(machine.TASK_PHASES)}
_CYCLES = forms.tuple_form(
    Form(forms.object_schema({**_TASK, "cycles": forms.POSITIVE}))
).with_conversion(
    lambda cycles: [{"stage": s, "phase": p, "cycles": n} for (s, p), n in cycles.items()],
    lambda entries: {(entry["stage"], entry["phase"]): entry["cycles"] for entry in entries},
)


class _Tasks(NamedTuple):
    """Tasks of one stage and phase, in the order of their ticks."""

    stage: int
    phase: str
    ticks: np.ndarray
    micro_batches: np.ndarray


def _split_grid_by_task_kind(grid: machine.Grid) -> list[_Tasks]:
    return [
        _Tasks(
            stage,
            machine.TASK_PHASES[phase],
            grid.tick[task_indices],
            grid.micro_batch[task_indices],
        )
        for (stage, phase), task_indices in runs.group_equal_rows(grid.stage, grid.phase)
    ]


def _join_grid(task_groups: Sequence[_Tasks]) -> machine.Grid:
    columns = [np.empty((4, 0), dtype=np.int64)]
    for task_group in task_groups:
        stage = np.full_like(task_group.ticks, task_group.stage)
        phase = np.full_like(task_group.ticks, machine.TASK_PHASES.index(task_group.phase))
        columns.append(np.stack([stage, phase, task_group.micro_batches, task_group.ticks]))
    return machine.Grid.from_unsorted_tasks(*np.concatenate(columns, axis=1))


_TASKS = forms.object_form(_Tasks, {**_TASK, "ticks": forms.RUNS, "micro_batches": forms.RUNS})
PIPELINE = forms.object_form(
    machine.PipelineProfile,
    {
        "schedule": TEXT,
        **dict.fromkeys(("stages", "micro_batches", "ticks"), COUNT),
        "bubble_fraction": forms.SHARE,
        "utilisation": forms.POSITIVE,
        "cycles": COUNT,
        "tick_cycles": forms.REPEATS,
        "stage_cycles": _CYCLES,
        "stage_ipus": forms.tuple_form(forms.tuple_form(COUNT)),
        "tasks": forms.tuple_form(_TASKS)
        .with_conversion(_split_grid_by_task_kind, _join_grid)
        .from_attribute("grid"),
    },
)
