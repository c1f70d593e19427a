"""Steps, program trees, operations and pipelines come back from JSON as they were."""

from __future__ import annotations

import dataclasses as dc
import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from ipujax.report.presentation.document.forms import StringTable
from ipujax.report.presentation.document.sections import OPERATIONS, PIPELINE, PROGRAM
from ipujax.report.presentation.document.trace_nodes import STEPS
from lowering import InternalError, machine, schedules, trace
from tests.lowering.machine import samples
from tests.lowering.machine.test_residency import on, repeated
from tests.lowering.machine.test_timing import MORE, looping
from tests.lowering.machine.test_trace import traces


def through(section: Any, value: Any) -> tuple[Any, Any]:
    """Its document, and what is read from it after a way through a file."""
    strings = StringTable()
    data = section.encode(value, strings)
    read = json.loads(json.dumps(data, allow_nan=False))
    assert read == data
    return data, section.decode(read, strings.texts)


def same_columns(one: machine.Steps, other: machine.Steps) -> None:
    wanted, found = one.columns(), other.columns()
    assert wanted.keys() == found.keys()
    for key, column in wanted.items():
        assert column.dtype == found[key].dtype or column.dtype.kind == "U"
        np.testing.assert_array_equal(found[key], column, err_msg=key)


def plain(node: machine.ProgramNode) -> Any:
    """A tree as tuples, which can be compared."""
    fields = (node.kind, node.name, node.origin, node.ipu, node.count, node.cycles, node.operation)
    return (*fields, tuple(map(plain, node.children)))


# --- steps ----------------------------------------------------------------------------------------


@given(traces)
def test_any_steps(tree: trace.Trace) -> None:
    data, read = through(STEPS, machine.Steps(tree))
    same_columns(machine.Steps(tree), read)
    assert read.trace.span == tree.span
    assert data["count"] == tree.num_steps
    for number, node in enumerate(data["nodes"]):
        assert all(part < number for part in _parts(node))


def _parts(node: dict[str, Any]) -> list[int]:
    """The nodes that a node names."""
    if node["type"] == "group":
        return [part[0] for part in node["parts"]]
    if node["type"] == "tasks":
        return [task["body"] for task in node["tasks"]]
    return [node["body"]] if "body" in node else []


@pytest.mark.parametrize("name", MORE)
def test_programs(name: str) -> None:
    found = samples.modelled(MORE[name]())
    data, read = through(STEPS, found.steps)
    read = machine.Steps(read.trace, found.operations)
    same_columns(found.steps, read)
    assert list(read)[:100] == list(found.steps)[:100]
    assert through(STEPS, read)[0] == data
    _, tree = through(PROGRAM, found.program)
    assert plain(tree) == plain(found.program)
    _, totals = through(OPERATIONS, found.operations)
    assert totals == found.operations


def test_what_ipus_do_alike_is_written_once() -> None:
    def fn(x: Any) -> Any:
        for i in range(8):
            x = on(i, lambda x: jnp.exp(x), x)
        return x

    found = samples.profile(fn, samples.A, ipus=8)
    data, _ = through(STEPS, found.steps)
    texts = StringTable()
    assert STEPS.encode(found.steps, texts) == data
    names = [[texts.texts[number] for number in n["name"]] for n in data["nodes"] if "name" in n]
    assert len([own for own in names if "exp/Exp" in own]) == 1
    assert len([node for node in data["nodes"] if node["type"] == "on"]) == 8
    columns, _ = through(PROGRAM, found.program)
    assert columns["kind"].count(texts.number_text("operation")) <= 1 + len(found.operations)


def test_loops_are_as_large_as_their_bodies() -> None:
    short, long = (samples.profile(looping(n), samples.A, ipus=2).steps for n in (2, 10**9))
    sizes = [len(json.dumps(STEPS.encode(each, StringTable()))) for each in (short, long)]
    assert sizes[1] < sizes[0] + 50


BLOCK = {
    "type": "block",
    "ipu": 0,
    "kind": [0, 0],
    "name": [1, 1],
    "origin": [0, 0],
    "start": [0, 5],
    "cycles": [5, 5],
}
LOOP = {"type": "loop", "body": 0, "count": 3, "period": 10}


@pytest.mark.parametrize(
    ("nodes", "error"),
    [
        ([{**BLOCK, "name": [1, 9]}], IndexError),
        ([{**BLOCK, "start": [0]}], ValueError),
        ([{**BLOCK, "origin": [0]}], ValueError),
        ([{**BLOCK, "ipu": [0]}], ValueError),
        ([LOOP, BLOCK], IndexError),
        ([BLOCK, {**LOOP, "count": -3}], InternalError),
        ([BLOCK, {**LOOP, "type": "coil"}], KeyError),
        ([BLOCK, {**LOOP, "count": 4}], ValueError),
    ],
)
def test_steps_that_contradict_themselves(nodes: list[Any], error: type[Exception]) -> None:
    data = {"count": 6, "root": len(nodes) - 1, "nodes": nodes}
    with pytest.raises(error):
        STEPS.decode(data, ["", "add"])


@pytest.mark.parametrize("start", [[0, 5], None])
def test_steps_by_hand(start: list[int] | None) -> None:
    nodes = [{**BLOCK, "start": start}, LOOP]
    read = STEPS.decode({"count": 6, "root": 1, "nodes": nodes}, ["", "add"])
    assert [step.start_cycle for step in read] == [0, 5, 10, 15, 20, 25]
    assert {step.name for step in read} == {"add"}


# --- the program ----------------------------------------------------------------------------------


def test_shared_nodes_stay_shared() -> None:
    shared = machine.ProgramNode(kind="operation", name="add", cycles=3)
    again = dc.replace(shared)  # equal, but another one
    parts = (shared, again, dc.replace(shared, count=2))
    root = machine.ProgramNode(kind="sequence", name="f", cycles=12, children=parts)
    data, read = through(PROGRAM, root)
    assert data["children"] == [[], [], [0, 0, 1]]
    assert data["ipu"] == [-1, -1, -1]
    assert plain(read) == plain(root)
    assert read.children[0] is read.children[1]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"kind": [1, 9]}, IndexError),
        ({"kind": [2, 1]}, ValueError),
        ({"children": [[1], []]}, IndexError),
        ({"count": [1]}, ValueError),
        (
            dict.fromkeys(("kind", "name", "origin", "ipu", "count", "cycles", "children"), ()),
            LookupError,
        ),
    ],
)
def test_trees_that_contradict_themselves(change: dict[str, Any], error: type[Exception]) -> None:
    data: dict[str, Any] = {
        **{"kind": [1, 1], "name": [2, 2], "origin": [0, 0], "ipu": [-1, 0]},
        **{"count": [1, 1], "cycles": [1, 1], "children": [[], [0]]},
    }
    texts = ["", "repeat", "f"]
    assert PROGRAM.decode(data, texts).children[0].kind == "repeat"
    with pytest.raises(error):
        PROGRAM.decode({**data, **change}, texts)


# --- pipelines ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schedule",
    [schedules.grouped, schedules.interleaved, schedules.sequential, schedules.zero_bubble],
)
def test_pipelines(schedule: Any) -> None:
    found = samples.modelled(samples.pipeline(4, 16, schedule)).pipeline
    assert found is not None
    data, read = through(PIPELINE, found)
    for field in dc.fields(found):
        if field.name not in ("grid", "tick_cycles"):
            assert getattr(read, field.name) == getattr(found, field.name)
    np.testing.assert_array_equal(read.tick_cycles, found.tick_cycles)
    for field in dc.fields(found.grid):
        wanted = getattr(found.grid, field.name)
        assert getattr(read.grid, field.name).dtype == wanted.dtype
        np.testing.assert_array_equal(getattr(read.grid, field.name), wanted)
    assert sum(len(task["ticks"]) for task in data["tasks"]) < len(found.grid.tick)


def test_programs_without_a_pipeline_have_their_totals_in_order() -> None:
    def fn(x: Any, w: Any) -> Any:
        return repeated(lambda c: (jnp.tanh(c @ w),), x)

    found = samples.profile(fn, samples.M, samples.M)
    data, _ = through(OPERATIONS, found.operations)
    cycles = [entry["cycles"] for entry in data]
    assert cycles == sorted(cycles, reverse=True)
    assert {"bytes", "flop_utilisation"} <= set(data[0])
