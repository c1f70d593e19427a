"""What waits between forward and backward tasks."""

from __future__ import annotations

import dataclasses as dc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering import Options, ir, lower, schedules
from lowering.ground import ValueId
from lowering.ops import TaskRole
from lowering.passes import size_fifos
from tests.lowering.pipelines.samples import dense, gated, micro_batch, pipelined, squares
from tests.lowering.samples import Queue, X, text_of


def program(stages, schedule, count, **options):
    body = micro_batch([*([dense] * (stages - 1)), squares], Queue("in"))
    closed = pipelined(body, stages, count, schedule=schedule)
    return lower(closed, Options(num_ipus=8, **options))


def pipeline_of(program):
    (node,) = (n for n in ir.walk_nodes(program.body) if isinstance(n, ir.Pipeline))
    return node


def makers_of_places(pipeline):
    """Returns the kind and the stage of the task that writes each value on each IPU."""
    makers = {}
    steps = []
    for step in pipeline.body.steps:
        steps.append(step)
        if isinstance(step, ir.Task):
            task = step.spec.kind, step.spec.stage
            makers.update((p, task) for s in steps for p in ir.places_of_writes(s))
            steps = []
    return makers


CLOSED_FORMS = {
    "grouped": (schedules.grouped, lambda stages, s: 2 * (stages - 1 - s)),
    "interleaved": (schedules.interleaved, lambda stages, s: stages - 1 - s),
    "sequential": (schedules.sequential, lambda stages, s: 0),
    "1F1B": (schedules.one_f_one_b, lambda stages, s: stages - 1 - s),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CLOSED_FORMS)
@given(st.integers(2, 4), st.integers(1, 2))
def test_depths_have_closed_forms(name, stages, rounds):
    schedule, depth = CLOSED_FORMS[name]
    fifos = pipeline_of(program(stages, schedule, rounds * 2 * stages)).fifos
    assert {f.stage for f in fifos} == set(range(stages))
    for fifo in fifos:
        assert fifo.depth == depth(stages, fifo.stage)
        assert fifo.ipu == fifo.stage


@pytest.mark.parametrize("recompute", [False, True])
def test_three_stages(recompute, golden):
    body = micro_batch([dense, gated, squares], Queue("in"))
    closed = pipelined(body, 3, 12)
    golden(ir.to_text(lower(closed, Options(num_ipus=4, allow_recompute=recompute))))


@pytest.mark.parametrize("schedule", [schedules.zero_bubble, schedules.grouped])
def test_each_value_of_a_stage_waits_once(schedule):
    """Also where both the backward and the weights task read it."""
    pipeline = pipeline_of(program(3, schedule, 12))
    for stage in range(3):
        names = [(v, f.ipu) for f in pipeline.fifos if f.stage == stage for v in f.values]
        assert names
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("schedule", "ahead"), [(schedules.zero_bubble_h1, 1), (schedules.zero_bubble_h2, 2)]
)
@given(st.integers(2, 5))
def test_gradients_wait_for_the_weights_task(schedule, ahead, stages):
    """H1 delays weights tasks of stage s by s micro-batches, H2 by twice as many (2401.10241)."""
    pipeline = pipeline_of(program(stages, schedule, 2 * stages))
    maker = makers_of_places(pipeline)
    depths = {
        fifo.stage: fifo.depth
        for fifo in pipeline.fifos
        for value in fifo.values
        if maker[value, fifo.ipu] == (TaskRole.BACKWARD, fifo.stage)
    }
    assert depths == {stage: ahead * stage for stage in range(stages)}


@pytest.mark.parametrize("schedule", [schedules.gpipe, schedules.one_f_one_b])
def test_gradients_on_their_way_wait_in_no_fifo(schedule):
    pipeline = pipeline_of(program(3, schedule, 6))
    tasks = [step for step in pipeline.body.steps if isinstance(step, ir.Task)]
    forward = [task for task in tasks if task.spec.kind is TaskRole.FORWARD]
    made = {value for task in forward for value, _ in ir.places_of_writes(task)}
    assert {value for fifo in pipeline.fifos for value in fifo.values} <= made


def test_with_recomputation_less_waits():
    less, more = (
        sum(len(f.values) for f in pipeline_of(program(4, schedules.grouped, 8, **o)).fifos)
        for o in ({"allow_recompute": True}, {})
    )
    assert less < more


def test_programs_without_pipelines_have_none():
    assert "fifo" not in text_of(lambda x: x + 1, X)


def test_a_pipeline_in_the_condition_of_a_loop():
    whole = program(2, schedules.grouped, 4)
    (found,) = (n for n in whole.body.steps if isinstance(n, ir.Pipeline))
    unsized = dc.replace(found, fifos=())
    empty = ir.Sequence(())
    loop = ir.While(condition=ir.Sequence((unsized,)), predicate=ValueId(0), body=empty, carry=())
    sized = size_fifos(dc.replace(whole, body=ir.Sequence((loop,))))
    assert found.fifos
    assert sized.body.steps[0].condition.steps == (found,)
