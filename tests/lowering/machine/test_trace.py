"""A trace reads as the list that it stands for, however it is read."""

from __future__ import annotations

import dataclasses as dc
import tracemalloc
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.ground import InternalError
from lowering.machine import trace
from lowering.machine.trace import KINDS, NONE, PHASES, Step, Steps, Trace, count_busy_cycles

NUM_IPUS = 3


class Operation(NamedTuple):
    ipu: int
    number: int
    direction: str | None


OPERATIONS = [  # of one number there is none on IPU 2
    Operation(ipu, number, way)
    for number, way in enumerate(("update", "forward", None))
    for ipu in range(NUM_IPUS - (number == 1))
]

rows = st.lists(
    st.tuples(
        st.integers(0, NUM_IPUS - 1),
        st.sampled_from(KINDS),
        st.sampled_from("abc"),
        st.sampled_from(["", "f.py:1"]),
        st.integers(0, 50),
        st.integers(0, 20),
        st.integers(NONE, 2),
    ),
    max_size=4,
)
blocks = st.builds(trace.build_block, rows)


def _tasks(bodies: list[Trace], picks: list[tuple[int, int, int, int, int]]) -> Trace:
    which = [pick[0] % len(bodies) for pick in picks]
    _, start, stage, micro_batch, phase = zip(*picks, strict=True) if picks else ((),) * 5
    words = [PHASES[code] for code in phase]
    return trace.build_tasks(bodies, which, list(start), list(stage), list(micro_batch), words)


def _wider(inner: st.SearchStrategy[Trace]) -> st.SearchStrategy[Trace]:
    pick = st.tuples(
        st.integers(0, 9),
        st.integers(0, 99),
        st.integers(NONE, 3),
        st.integers(NONE, 5),
        st.integers(0, 2),
    )
    return st.one_of(
        st.builds(
            trace.group_traces,
            st.lists(st.tuples(st.integers(0, 30), inner), min_size=0, max_size=3),
        ),
        st.builds(trace.assign_to_ipu, inner, st.integers(0, NUM_IPUS - 1)),
        st.builds(trace.repeat_trace, inner, st.integers(0, 4), st.integers(0, 40)),
        st.builds(trace.repeat_trace_at_cycles, inner, st.lists(st.integers(0, 99), max_size=4)),
        st.builds(lambda child: trace.group_traces([(0, child), (7, child), (3, child)]), inner),
        st.builds(_tasks, st.lists(inner, min_size=1, max_size=3), st.lists(pick, max_size=4)),
    )


traces = st.recursive(blocks, _wider, max_leaves=6)


def expanded(
    tree: Trace, cycle: int = 0, labels: tuple[object, ...] = (None, None, None)
) -> list[Step]:
    """All steps, slowly."""
    if isinstance(tree, trace.Block):
        ipus: list[int] = tree.ipu.tolist()
        return [
            Step(
                ipus[i],
                KINDS[tree.kind[i]],
                tree.names[tree.name[i]],
                cycle + int(tree.start[i]),
                int(tree.cycles[i]),
                *labels,
                origin=tree.origins[tree.name[i]],
                operation=tree.operations[tree.name[i]],
            )
            for i in range(len(ipus))
        ]
    if isinstance(tree, trace.On):
        return [dc.replace(step, ipu=tree.ipu) for step in expanded(tree.body, cycle, labels)]
    found: list[Step] = []
    if isinstance(tree, trace.Group):
        for offset, child in zip(tree.offset, tree.children, strict=True):
            found += expanded(child, cycle + int(offset), labels)
    elif isinstance(tree, trace.Loop):
        for i in range(tree.count):
            found += expanded(tree.body, cycle + i * tree.period, labels)
    else:
        for i, body in enumerate(tree.which):
            if tree.phase[i] == NONE:
                found += expanded(tree.bodies[body], cycle + int(tree.start[i]), labels)
                continue
            stage, micro_batch = int(tree.stage[i]), int(tree.micro_batch[i])
            own = (
                None if stage == NONE else stage,
                None if micro_batch == NONE else micro_batch,
                PHASES[tree.phase[i]],
            )
            found += expanded(tree.bodies[body], cycle + int(tree.start[i]), own)
    return found


def known(tree: Trace) -> list[Step]:
    """All steps, with the places of their operations instead of their numbers."""
    steps: list[Step] = []
    for step in expanded(tree):
        place, way = None, None
        for i, operation in enumerate(OPERATIONS):
            if (operation.ipu, operation.number) == (step.ipu, step.operation):
                place, way = i, operation.direction
        steps.append(dc.replace(step, operation=place, direction=way))
    return steps


@given(traces, st.data())
def test_lazy_access_equals_expansion(tree: Trace, data: st.DataObject) -> None:
    steps, all_steps = Steps(tree, OPERATIONS), known(tree)
    assert len(steps) == tree.num_steps == len(all_steps)
    assert list(steps) == all_steps
    assert [steps[i] for i in range(len(steps))] == all_steps
    assert [steps[i] for i in range(-len(steps), 0)] == all_steps
    bound = st.none() | st.integers(-2 - len(steps), 2 + len(steps))
    part = slice(data.draw(bound), data.draw(bound), data.draw(st.sampled_from([None, 1, 2, -1])))
    assert steps[part] == all_steps[part]
    assert tree.span >= max((step.start_cycle + step.cycles for step in all_steps), default=0)


@given(traces, st.data())
def test_columns_equal_expansion(tree: Trace, data: st.DataObject) -> None:
    limit = data.draw(st.none() | st.integers(0, tree.num_steps + 1))
    columns = Steps(tree, OPERATIONS).columns(limit)
    names, origins = columns.pop("names"), columns.pop("origins")
    called = list(zip(names.tolist(), origins.tolist(), strict=True))
    assert len(set(called)) == len(called)
    assert {len(column) for column in columns.values()} == {len(expanded(tree)[:limit])}
    for i, step in enumerate(known(tree)[:limit]):
        row = {key: column[i].item() for key, column in columns.items()}
        assert row == {
            "ipu": step.ipu,
            "kind": KINDS.index(step.kind),
            "name": called.index((step.name, step.origin)),
            "start_cycle": step.start_cycle,
            "cycles": step.cycles,
            "operation": NONE if step.operation is None else step.operation,
            "stage": NONE if step.stage is None else step.stage,
            "micro_batch": NONE if step.micro_batch is None else step.micro_batch,
            "phase": NONE if step.phase is None else PHASES.index(step.phase),
        }


@given(traces)
def test_busy_equals_the_sum_of_all_steps(tree: Trace) -> None:
    want = np.zeros((NUM_IPUS, len(KINDS)), dtype=np.int64)
    for step in expanded(tree):
        want[step.ipu, KINDS.index(step.kind)] += step.cycles
    np.testing.assert_array_equal(count_busy_cycles(tree, NUM_IPUS), want)


@given(traces, st.integers(0, 150))
def test_the_early_part_is_what_starts_before_a_cycle(tree: Trace, before: int) -> None:
    part = trace.steps_before(tree, before)
    assert expanded(part) == [step for step in expanded(tree) if step.start_cycle < before]


@given(traces, st.integers(1, 30))
def test_first_steps_are_as_many_as_asked_for_and_no_earlier_ones_are_missing(
    tree: Trace, most: int
) -> None:
    part, before = trace.first_steps(tree, most)
    starts = sorted(step.start_cycle for step in expanded(tree))
    assert part.num_steps == sum(start < before for start in starts)
    assert part.num_steps >= min(most, len(starts))
    assert sum(start < before - 1 for start in starts) < most or len(starts) <= most


def test_the_first_steps_of_an_endless_loop_cost_nothing() -> None:
    body = trace.build_block([(0, "compute", "a", "", 0, 3), (0, "exchange", "b", "", 3, 4)])
    part, before = trace.first_steps(trace.repeat_trace(body, 10**12, 10), 1000)
    assert (part.num_steps, before) == (1000, 4994)


def test_a_loop_of_tasks_by_hand() -> None:
    body = trace.build_block([(0, "compute", "add", "", 0, 10), (0, "sync", "sync", "", 10, 5)])
    once = trace.build_tasks([body], [0, 0], [0, 20], [0, 1], [7, NONE], ["fwd", "update"])
    steps = Steps(trace.group_traces([(100, trace.repeat_trace(once, 3, 50))]))
    assert (len(steps), steps.trace.span) == (12, 100 + 2 * 50 + 35)
    assert steps[6] == Step(0, "compute", "add", 170, 10, 1, None, "update")
    assert steps[-1] == Step(0, "sync", "sync", 230, 5, 1, None, "update")
    assert count_busy_cycles(steps.trace, 1).tolist() == [[60, 0, 30, 0, 0, 0]]
    assert repr(steps) == "<12 steps in 235 cycles>"


def test_steps_in_no_task_have_no_labels() -> None:
    (step,) = Steps(trace.build_block([(1, "host", "infeed", "", 2, 3)]))
    assert (step.stage, step.micro_batch, step.phase) == (None, None, None)


@pytest.mark.parametrize("index", [1, -2, 10**12])
def test_steps_that_are_not_there(index: int) -> None:
    with pytest.raises(IndexError, match=f"step {index} of 1"):
        Steps(trace.build_block([(0, "host", "infeed", "", 0, 1)]))[index]


def test_endless_loops_cost_nothing() -> None:
    body = trace.build_block([(0, "compute", "add", "", 0, 3)])
    steps = Steps(trace.repeat_trace(trace.repeat_trace(body, 10**6, 3), 10**6, 3 * 10**6))
    assert len(steps) == 10**12
    assert steps[10**12 - 1].start_cycle == 3 * (10**12 - 1)
    assert count_busy_cycles(steps.trace, 1)[0, 0] == 3 * 10**12
    assert len(steps[10**11 : 10**11 + 5]) == len(steps.columns(5)["ipu"]) == 5


@pytest.mark.parametrize(
    "make",
    [
        lambda: trace.build_block([(0, "sleep", "a", "", 0, 1)]),
        lambda: trace.build_block([(0, "sync", "a", "", -1, 1)]),
        lambda: trace.group_traces([(-1, trace.build_block([]))]),
        lambda: trace.repeat_trace(trace.build_block([]), -1, 0),
        lambda: trace.assign_to_ipu(trace.build_block([]), -1),
        lambda: trace.build_tasks([], [0], [0], [0], [0], ["fwd"]),
        lambda: trace.build_tasks([trace.build_block([])], [0], [0, 1], [0], [0], ["fwd"]),
        lambda: trace.build_tasks([trace.build_block([])], [0], [0], [0], [0], np.array([3])),
        lambda: trace.build_tasks([trace.build_block([])], [0], [0], [0], [NONE], np.array([NONE])),
        lambda: trace.build_tasks([trace.build_block([])], [0], [0], [-2], [0], ["fwd"]),
        lambda: count_busy_cycles(trace.build_block([(2, "sync", "a", "", 0, 1)]), 2),
        lambda: count_busy_cycles(
            trace.assign_to_ipu(trace.build_block([(0, "sync", "a", "", 0, 1)]), 2), 2
        ),
    ],
)
def test_what_is_no_trace_is_refused(make: object) -> None:
    with pytest.raises(InternalError):
        make()


def test_millions_of_steps_are_stored_once() -> None:
    stages, micro_batches, count = 64, 1024, 64 * 1024 * 2
    bodies = [
        trace.build_block((stage, "compute", f"op {i}", "", 10 * i, 10) for i in range(50))
        for stage in range(stages)
    ] * 2
    tracemalloc.start()
    run = np.arange(count)
    tree = trace.build_tasks(
        bodies, run % 128, run * 500, run % stages, run % micro_batches, run // 64 % 2
    )
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    steps = Steps(tree)
    assert len(steps) == 6_553_600
    assert steps[50 * 100_001 + 49] == Step(33, "compute", "op 49", 50_000_990, 10, 33, 673, "fwd")
    assert most < 50e6
