"""Pipelines with their finished schedules."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from lowering import Options, ir, lower, schedules
from lowering.jaxprs import jaxpr
from lowering.ops import cross_replica_sum
from lowering.passes import plan_pipelines
from lowering.passes.plan_pipelines import is_pipeline
from lowering.pipelines import Recomputation, TaskRole, tasks_of_stage
from lowering.schedules import Schedule, ScheduleError
from tests.lowering.pipelines.samples import (
    body_text,
    dense,
    gated,
    loop_of,
    micro_batch,
    pipelined,
    squares,
)
from tests.lowering.samples import Queue, V, trace

STAGES = [dense, gated, squares]


def planned(count=12, options=None, **more):
    closed = pipelined(micro_batch(STAGES, Queue("in")), 3, count, **more)
    return loop_of(plan_pipelines(closed, options or Options(num_ipus=4), 4))


@pytest.mark.parametrize(
    ("more", "options"),
    [
        ({}, {}),
        ({"schedule": schedules.zero_bubble}, {}),
        ({"offload_activations": True}, {}),
        ({"offload_activations": True, "schedule": schedules.zero_bubble}, {"allow_recompute": 1}),
    ],
    ids=["grouped", "zero bubble", "offloaded", "all at once"],
)
def test_planned(more, options, golden):
    golden(body_text(planned(options=Options(num_ipus=4, **options), **more).params["body"]))


def test_the_schedule_is_built():
    spec = planned().params["pipeline"]
    assert isinstance(spec.schedule, Schedule)
    assert (spec.schedule.name, spec.schedule.micro_batches) == ("grouped", 12)


def test_no_task_makes_what_nobody_reads():
    body = planned().params["body"].jaxpr
    read = {a for e in body.eqns for a in e.invars} | set(body.outvars)
    assert read.issuperset(v for e in body.eqns for v in e.outvars)
    loss_task = tasks_of_stage(planned().params["body"], 2)[TaskRole.FORWARD]
    assert all(v.aval.shape for v in loss_task.outvars)  # the loss is not sent anywhere


def test_recomputation_needs_the_configuration():
    mode = {"recomputation": Recomputation.THEN_BACKPROPAGATE}
    allowed = planned(options=Options(num_ipus=4, allow_recompute=True), **mode)
    assert "recompute" in body_text(allowed.params["body"])
    assert "recompute" not in body_text(planned(**mode).params["body"]).replace(
        "ipu_recomputation_checkpoint", ""
    )


@pytest.mark.parametrize(
    ("schedule", "offloads", "keeps"),
    [
        (schedules.grouped, True, True),
        (schedules.zero_bubble, False, True),
        (schedules.zero_bubble, True, False),  # what waits for gradients of weights would move
        (schedules.gpipe, False, False),
    ],
)
def test_a_last_stage_that_goes_backward_at_once_keeps_its_values(schedule, offloads, keeps):
    body = planned(
        options=Options(num_ipus=4, allow_recompute=True),
        recomputation=Recomputation.THEN_BACKPROPAGATE,
        schedule=schedule,
        offload_activations=offloads,
    ).params["body"]
    backward = [tasks_of_stage(body, stage)[TaskRole.BACKWARD] for stage in (1, 2)]
    inner = [[e.primitive.name for e in task.params["body"].jaxpr.eqns] for task in backward]
    assert ["ipu_task" in names for names in inner] == [True, not keeps]


def test_stages_that_span_all_ipus():
    spec = planned(ipus=((), (1,), ()), schedule=schedules.sequential).params["pipeline"]
    assert spec.schedule.ipus == ((0, 1, 2, 3), (1,), (0, 1, 2, 3))


def test_pipelines_inside_control_flow():
    closed = pipelined(micro_batch(STAGES), 3, 12)

    def program(*flat):
        def step(carry, _):
            return jaxpr.run_equations(closed.jaxpr, (), [*flat[:4], *carry]), None

        return jax.lax.scan(step, list(flat[4:]), None, length=2)[0]

    whole = plan_pipelines(jaxpr.trace_flat(program, closed.in_avals), Options(num_ipus=4), 4)
    (scan,) = (e for e in whole.jaxpr.eqns if e.primitive.name == "scan")
    (loop,) = (e for e in scan.params["jaxpr"].eqns if is_pipeline(e))
    assert isinstance(loop.params["pipeline"].schedule, Schedule)


def test_programs_without_pipelines_stay():
    closed = trace(jnp.sin, V)
    assert plan_pipelines(closed, Options(), 1) is closed


def busy(w, x):
    """A stage with all that earlier passes rewrite."""
    h = cross_replica_sum(jnp.tanh(x @ w))
    h = jax.vmap(lambda row: jax.lax.while_loop(lambda r: r.sum() > 1, lambda r: r / 2, row))(h)
    jax.debug.callback(lambda total: None, h.sum())
    return jax.lax.stop_gradient(h) + jax.jit(jnp.sin)(x @ w)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize("replicas", [1, 2])
def test_earlier_passes_leave_tasks_and_pipelines_as_they_are(replicas, checks):
    counts = {}
    options = Options(
        num_ipus=2 * replicas,
        catch_division=checks,
        allow_recompute=True,
        on_pass=lambda name, text: counts.update({name: text.count("ipu_task[")}),
    )
    body = micro_batch([busy, squares], Queue("in"))
    program = lower(pipelined(body, 2, 8, offload_activations=True), options)
    early = (
        "inline_calls",
        "make_loop_conditions_scalar",
        "resolve_collectives",
        "drop_recomputed_enqueues",
        "add_missing_batching_rules",
    )
    assert [counts[name] for name in early] == [4] * 5
    assert program.replicas == replicas
    (loop,) = (n for n in ir.walk_nodes(program.body) if isinstance(n, ir.Pipeline))
    tasks = [n.spec for n in loop.body.steps if isinstance(n, ir.Task)]
    assert sorted((t.kind.value, t.stage) for t in tasks) == [
        ("B", 0), ("B", 1), ("F", 0), ("F", 1),
    ]  # fmt: skip


# --- rejects --------------------------------------------------------------------------------------


def test_a_number_of_micro_batches_that_the_schedule_cannot_take():
    with pytest.raises(ScheduleError, match="pipeline `sample`") as error:
        planned(count=7, origin="train.py:12 (main)")
    assert "train.py:12" in str(error.value)
    assert error.value.fix


def test_a_schedule_for_another_pipeline():
    other = schedules.grouped(2, 8)
    with pytest.raises(ScheduleError, match="stages=2"):
        planned(schedule=other)


def test_a_schedule_that_cannot_run():
    def backward_first(stages, micro_batches):
        return [" ".join(f"{s}B{i} {s}F{i}" for i in range(micro_batches)) for s in range(stages)]

    with pytest.raises(ScheduleError, match="backward_first") as error:
        planned(schedule=backward_first)
    assert __file__ in str(error.value)


@pytest.mark.parametrize("queue", [Queue("elements"), None], ids=["fed", "unfed"])
def test_a_schedule_that_would_use_a_queue_out_of_order(queue):
    def backwards(stages, micro_batches):
        numbers = range(micro_batches)[::-1]
        return [" ".join(f"{s}{p}{i}" for p in "FB" for i in numbers) for s in range(stages)]

    closed = pipelined(micro_batch(STAGES, queue), 3, 4, schedule=backwards, origin="train.py:12")
    if queue is None:
        plan_pipelines(closed, Options(num_ipus=4), 4)
        return
    with pytest.raises(ScheduleError, match="backwards runs 0F3 before 0F2") as error:
        plan_pipelines(closed, Options(num_ipus=4), 4)
    assert "`elements`" in error.value.what
    assert "run 0F2 before 0F3" in error.value.fix
    assert error.value.where == "train.py:12"
