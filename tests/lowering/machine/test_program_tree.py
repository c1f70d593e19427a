"""The program tree: its cycles explain each other, and agree with the steps and the totals."""

from __future__ import annotations

import collections
import inspect
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from lowering import schedules
from lowering.machine import TASK_PHASES, Grid, ProgramNode
from lowering.ops import Storage, bring_from_storage, dequeue, enqueue, move_to_storage
from lowering.schedules import Phase, simulate
from tests.lowering.machine.samples import CHIP, TILES, A, M, kernel, modelled, pipeline, profile
from tests.lowering.machine.test_kernels import FUNCTIONS
from tests.lowering.machine.test_residency import on, repeated
from tests.lowering.machine.test_timing import MORE, branched, fed, looping
from tests.lowering.samples import N, Queue, lowered, outside


def kinds(node: ProgramNode) -> list[str]:
    return [child.kind for child in node.children]


def find(node: ProgramNode, kind: str) -> list[ProgramNode]:
    """All nodes of a kind, parents first."""
    found = [node] if node.kind == kind else []
    return found + [each for child in node.children for each in find(child, kind)]


def leaves(
    node: ProgramNode, times: int = 1, ipu: int | None = None
) -> Iterator[tuple[ProgramNode, int, int | None]]:
    """Those without children, how often each runs in a call, and where."""
    times, ipu = times * node.count, ipu if node.ipu is None else node.ipu
    if not node.children:
        yield node, times, ipu
    for child in node.children:
        yield from leaves(child, times, ipu)


def explained(node: ProgramNode) -> None:
    """Children take as long as their parent, at every level."""
    if node.children:
        assert node.cycles == sum(child.cycles * child.count for child in node.children), node.name
    for child in node.children:
        explained(child)


# --- cycles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels(name):
    cost = kernel(*FUNCTIONS[name])
    assert cost.cycles == sum(node.cycles * node.count for node in cost.nodes)
    for node in cost.nodes:
        explained(node)


def streamed(x):
    (y,) = dequeue(Queue("in"), [jax.typeof(jnp.zeros(1024, jnp.float32))])
    enqueue(Queue("out"), [x * y], None)
    return x * y


def stored(x):
    remote = Storage(remote=True)
    return repeated(
        lambda k: (move_to_storage(jnp.exp(bring_from_storage(k, remote)), remote),),
        move_to_storage(x + 1, remote),
    )


def called(x):
    y = on(0, jnp.exp, x)
    with outside("h"):
        z = jnp.log(y)
    return on(0, jnp.sqrt, z)


def endless(x):
    return lax.while_loop(lambda c: c.sum() < 3.0, streamed, x)


def chosen(x, n):
    return lax.cond(n > 0, lambda x: streamed(jnp.exp(x)), lambda x: x + 1, x)


SINGLE = {
    "streams": lambda: lowered(streamed, A, ipus=1),
    "storage": lambda: lowered(stored, A, ipus=1),
    "host": lambda: lowered(called, A, ipus=1),
    "while": lambda: lowered(endless, A, ipus=1),
    "switch": lambda: lowered(chosen, A, N, ipus=1),
    "fed": lambda: fed(jnp.sqrt, 1 << 20),
    "kernel loops": lambda: lowered(FUNCTIONS["nested"][0], M, M, ipus=1),
    "pipeline": lambda: pipeline(1, 8, schedules.sequential),
}


@pytest.mark.parametrize("name", SINGLE)
def test_on_one_ipu_parts_explain_the_whole(name):
    found = modelled(SINGLE[name]())
    assert found.num_ipus == 1
    assert found.program.cycles == found.cycles > 0
    explained(found.program)


@pytest.mark.sampled(21)
@pytest.mark.parametrize("name", {**MORE, **SINGLE})
def test_operations_add_up_to_their_totals(name):
    found = modelled({**MORE, **SINGLE}[name]())
    assert found.program.cycles == found.cycles
    assert (found.program.kind, found.program.name) == ("sequence", found.name)
    spent = collections.Counter()
    for node, times, ipu in leaves(found.program):
        if node.kind == "operation":
            assert ipu is not None
            spent[ipu, node.name] += node.cycles * times
    totals = collections.Counter()
    for operation in found.operations:
        totals[operation.ipu, operation.name] += round(operation.cycles)
    assert +spent == collections.Counter({key: totals[key] for key in +spent})
    moves = (
        "stream",
        "copy",
        "host copy",
        "load from",
        "store to",
        "all-gather",
        "pipeline transfers",
    )
    assert all(name.startswith(moves) for _, name in (+totals).keys() - spent.keys())


# --- what is there --------------------------------------------------------------------------------


def test_a_loop_over_two_ipus():
    found = profile(looping(7), A, ipus=2)
    (loop,) = found.program.children
    assert (loop.kind, loop.count, loop.ipu) == ("repeat", 7, None)
    assert loop.cycles * 7 == found.cycles
    assert [(n.kind, n.name.split()[0], n.ipu) for n in loop.children] == [
        ("copy", "copy", None),
        ("execute", "exp", 0),
        ("copy", "copy", None),
        ("execute", "sqrt", 1),
    ]
    assert [n.name for n in loop.children if n.kind == "copy"] == ["copy 1 -> 0", "copy 0 -> 1"]
    (exp,) = loop.children[1].children
    assert (exp.kind, exp.name, exp.ipu) == ("operation", "exp float32[1024]", None)


def test_branches_that_are_not_taken_count_nothing():
    (switch,) = find(profile(branched, A, N, ipus=2).program, "switch")
    assert kinds(switch) == ["sequence"] * 3
    assert [branch.count for branch in switch.children] == [0, 1, 0]
    assert switch.cycles == max(branch.cycles for branch in switch.children)


@pytest.mark.parametrize(
    ("name", "kind", "names"),
    [
        ("streams", "stream_in", ["stream-in in"]),
        ("streams", "stream_out", ["stream-out out"]),
        ("storage", "load", ["load from streaming memory"]),
        ("storage", "store", ["store to streaming memory", "store to streaming memory"]),
        ("host", "host_call", ["h"]),
        ("host", "copy", ["host copy", "host copy"]),
        ("while", "while", ["while"]),
        ("kernel loops", "repeat", ["scan", "scan"]),
    ],
)
def test_nodes_of_each_kind(name, kind, names):
    assert [node.name for node in find(modelled(SINGLE[name]()).program, kind)] == names


def test_equal_kernels_share_their_operations():
    def fn(x):
        for i in range(4):
            x = on(i % 2, lambda x: jnp.exp(x), x)
        return x

    executes = find(profile(fn, A, ipus=2).program, "execute")
    assert [node.ipu for node in executes] == [0, 1, 0, 1]
    assert executes[1].children is executes[2].children is executes[3].children


def test_kernels_are_called_by_what_takes_longest():
    (node,) = find(profile(lambda x: jnp.sort(x @ x, axis=0)[0] + 1, M).program, "execute")
    most = max(node.children, key=lambda child: child.cycles)
    assert node.name == f"{most.name} and {len(node.children) - 1} more"


# --- lines ----------------------------------------------------------------------------------------


def line(fn, offset):
    """What a user's line looks like: so many lines below the `def` of a function."""
    return f"{__file__}:{inspect.getsourcelines(fn)[1] + offset} "


def test_everything_has_its_line():
    """Two kernels that are alike stand on different lines."""

    def fn(x):
        a = on(0, lambda x: jnp.exp(x), x)
        b = on(1, lambda a: jnp.exp(a), a)
        return on(0, lambda b: jnp.exp(b), b)

    found = profile(fn, A, ipus=2)
    lines = [line(fn, i) for i in (1, 2, 3)]
    executes = find(found.program, "execute")
    for node, want in zip(executes, lines, strict=True):
        (operation,) = node.children
        assert node.origin.startswith(want)
        assert operation.origin.startswith(want)
    copies = find(found.program, "copy")
    assert [copy.origin.startswith(want) for copy, want in zip(copies, lines, strict=False)] == [
        True,
        True,
    ]
    computed = [step.origin for step in found.steps if step.kind == "compute"]
    assert [origin.startswith(want) for origin, want in zip(computed, lines, strict=True)] == [
        True
    ] * 3
    moved = {step.name: step.origin for step in found.steps if step.kind == "inter_ipu"}
    assert moved["copy 0 -> 1"].startswith(lines[0])
    assert moved["copy 1 -> 0"].startswith(lines[1])


def test_streaming_memory_has_the_line_that_made_the_value():
    def fn(x):
        y = jnp.exp(x)
        return (
            bring_from_storage(move_to_storage(y, Storage(remote=True)), Storage(remote=True)) * 2
        )

    found = profile(fn, A).program
    for kind in ("store", "load"):
        (node,) = find(found, kind)
        assert node.origin.startswith(line(fn, 1))


# --- pipelines ------------------------------------------------------------------------------------


def test_a_sequential_pipeline_is_its_tasks_and_transfers():
    found = modelled(pipeline(2, 8, schedules.sequential))
    (node,) = find(found.program, "pipeline")
    tasks = [child for child in node.children if child.kind == "task"]
    assert [(task.name, task.count, task.ipu) for task in tasks] == [
        ("stage 0 fwd", 8, 0),
        ("stage 1 fwd", 8, 1),
        ("stage 1 bwd", 8, 1),
        ("stage 0 bwd", 8, 0),
    ]
    assert found.pipeline is not None
    for task in tasks:
        _, stage, phase = task.name.split()
        assert task.cycles == found.pipeline.stage_cycles[int(stage), phase]
        explained(task)
    explained(node.children[0])
    assert node.cycles == sum(child.cycles * child.count for child in node.children)


@pytest.mark.parametrize("schedule", [schedules.grouped, schedules.interleaved])
def test_transfers_are_what_ticks_take_beside_their_tasks(schedule):
    found = modelled(pipeline(4, 16, schedule))
    (node,) = find(found.program, "pipeline")
    moved = [child for child in node.children if child.name == "pipeline transfers"]
    spent = [op for op in found.operations if op.name == "pipeline transfers"]
    assert found.pipeline is not None
    assert sum(child.count for child in moved) == found.pipeline.ticks
    ticks = sum(child.cycles * child.count for child in moved)
    assert max(op.cycles for op in spent) <= ticks < found.pipeline.cycles
    assert {op.runs for op in spent} == {found.pipeline.ticks}
    assert all(op.bytes > 0 for op in spent)


def test_the_grid_of_a_pipeline():
    found = modelled(pipeline(4, 16)).pipeline
    assert found is not None
    schedule = schedules.grouped(4, 16)
    assert found.stage_ipus == schedule.ipus
    words = {Phase.FORWARD: "fwd", Phase.BACKWARD: "bwd", Phase.WEIGHTS: "wgt"}
    want = [
        (tick, task.stage, words[task.phase], task.micro_batch)
        for tick, tasks in enumerate(schedule.ticks)
        for task in tasks
    ]
    assert sorted(_tasks(found.grid)) == sorted(want)
    assert (found.grid.tick[1:] >= found.grid.tick[:-1]).all()
    assert simulate(schedule).bubble == pytest.approx(found.bubble_fraction)


def _tasks(grid: Grid) -> list[tuple[int, int, str, int]]:
    columns = (grid.tick, grid.stage, grid.phase, grid.micro_batch)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(tick, stage, TASK_PHASES[phase], batch) for tick, stage, phase, batch in rows]


# --- bytes and units ------------------------------------------------------------------------------


def operation(found, name):
    (one,) = (each for each in found.operations if each.name.split()[0] == name)
    return one


@pytest.mark.parametrize(("dtype", "macs"), [("float32", 16), ("float16", 64)])
def test_products_by_hand(dtype, macs):
    """Three matrices of 64 x 64; the units do `macs` of them per cycle and tile."""
    square = jax.ShapeDtypeStruct((64, 64), jnp.dtype(dtype))
    found = operation(profile(lambda x, y: x @ y, square, square), "dot_general")
    assert found.bytes == 3 * 64 * 64 * (4 if dtype == "float32" else 2)
    most = 2 * macs * TILES * found.cycles
    assert found.flop_utilisation == pytest.approx(2 * 64**3 / most, rel=1e-12)
    assert 0 < found.flop_utilisation < 1
    assert max(rate for (given, _), rate in CHIP.macs_per_cycle if given == dtype) == macs


def test_chains_by_hand():
    """What passes from one operation of a chain to the next is not in memory."""
    (found,) = profile(lambda x, y: jnp.exp(x + y) * y, A, A).operations
    assert found.bytes == 3 * 4096


def test_what_has_no_floating_point_has_no_share_of_it():
    whole = jax.ShapeDtypeStruct((1024,), jnp.int32)
    found = operation(profile(lambda x: x + x, whole), "add")
    assert (found.flops, found.flop_utilisation, found.bytes) == (0, None, 2 * 4096)


def test_runs_and_moves_count_their_bytes():
    found = profile(looping(5), A, ipus=2)
    assert operation(found, "exp").bytes == 5 * 2 * 4096
    copies = [each for each in found.operations if each.name == "copy 0 -> 1"]
    assert [(each.ipu, each.bytes) for each in copies] == [(0, 5 * 4096), (1, 5 * 4096)]
