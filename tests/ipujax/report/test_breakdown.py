"""Every cycle of an IPU has one cause: breakdowns add up, and say what the steps say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax import schedules
from ipujax.pipelining_ops import PipelineSchedule, pipeline
from ipujax.report import Report
from lowering import machine, trace
from tests.ipujax.feeding import infeed, outfeed
from tests.ipujax.reporting import configured, struct, training, zeros

WORDS = ("fwd", "bwd", "wgt")
SCHEDULES = {
    "grouped": PipelineSchedule.Grouped,
    "interleaved": PipelineSchedule.Interleaved,
    "sequential": PipelineSchedule.Sequential,
    "gpipe": schedules.gpipe,
    "1f1b": schedules.one_f_one_b,
    "zero bubble": schedules.zero_bubble,
}


def report_of(function: Callable[..., Any], *args: Any) -> Report:
    return ipu.compile(function).lower(*args).report()


def covered(starts: np.ndarray, cycles: np.ndarray) -> int:
    """Cycles in which at least one of some steps runs."""
    total = end = 0
    for start, length in sorted(zip(starts.tolist(), cycles.tolist(), strict=True)):
        total += max(0, start + length - max(start, end))
        end = max(end, start + length)
    return total


def check(report: Report) -> dict[str, np.ndarray]:
    """Compares a breakdown with the steps, one by one."""
    found = report.breakdown
    assert found is not None
    assert tuple(found) == machine.CAUSES
    assert all(cycles.min() >= 0 for cycles in found.values()), found
    assert (sum(found.values()) == report.cycles).all()
    steps = report.steps.columns()
    kind = np.array(trace.KINDS)[steps["kind"]]
    places = steps["operation"]
    of_update = np.array([o.direction == "update" for o in report.operations] + [False])[places]
    of_copy = np.char.endswith(steps["names"], "/sync")[steps["name"]] & (kind == "sync")
    here = np.isin(kind, ["compute", "exchange", "sync"]) & ~of_copy
    causes = {
        "work": here & (kind == "compute") & ~of_update,
        "exchange": here & (kind != "compute") & ~of_update,
        "update": here & of_update,
        "copies": of_copy | (kind == "inter_ipu"),
        "streaming memory": kind == "remote",
    }
    host = kind == "host"
    for ipu_ in range(report.num_ipus):
        own = steps["ipu"] == ipu_
        start, cycles = steps["start_cycle"], steps["cycles"]
        for cause, chosen in causes.items():
            assert found[cause][ipu_] == cycles[own & chosen].sum(), cause
        active = covered(start[own], cycles[own])
        assert found["host"][ipu_] == active - covered(start[own & ~host], cycles[own & ~host])
        waiting = found["bubble"][ipu_] + found["imbalance"][ipu_]
        assert waiting == report.cycles - active
    return dict(found)


def loss_of(weights: Any, x: Any) -> Any:
    return jnp.mean(jnp.tanh(x @ weights) ** 2)


def test_a_program_of_one_ipu_waits_for_nobody() -> None:
    configured()
    found = check(report_of(jax.grad(loss_of), struct(64, 64), struct(8, 64)))
    assert not (found["copies"] + found["imbalance"] + found["bubble"] + found["host"]).any()
    assert not found["update"].any()


def test_a_training_step_has_an_update() -> None:
    configured()
    optimizer = optax.adam(0.1)

    def step(weights: Any, slots: Any, x: Any) -> Any:
        updates, slots = optimizer.update(jax.grad(loss_of)(weights, x), slots)
        return optax.apply_updates(weights, updates), slots

    slots = jax.eval_shape(optimizer.init, struct(64, 64))
    assert check(report_of(step, struct(64, 64), slots, struct(8, 64)))["update"].all()


def test_a_shard_that_waits_for_another_is_imbalance() -> None:
    configured(2)

    def model(x: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            x = x @ x
        with ipu.scopes.ipu_shard(1):
            return jnp.tanh(x)

    found = check(report_of(model, struct(128, 128)))
    assert found["imbalance"][1] > 0
    assert found["copies"].all()
    assert not found["bubble"].any()


@pytest.mark.parametrize("name", SCHEDULES)
def test_pipelines_of_every_schedule_add_up(name: str) -> None:
    configured(4)
    model, args = training(4, 8, pipeline_schedule=SCHEDULES[name])
    report = report_of(model, *args)
    found, lines = check(report), report.pipeline
    assert found["bubble"].all()
    assert lines is not None
    tasks = np.zeros((lines.ticks, 4), dtype=np.int64)
    work = np.zeros((lines.ticks, 4), dtype=np.int64)
    for stage, phase, tick in zip(lines.grid.stage, lines.grid.phase, lines.grid.tick, strict=True):
        work[tick, stage] += lines.stage_cycles[int(stage), WORDS[phase]]
        tasks[tick, stage] += 1
    idle = work.max(axis=1, keepdims=True) * (tasks == 0)
    if tasks.max() == 1:
        assert found["bubble"].tolist() == idle.sum(axis=0).tolist()
    assert (found["bubble"] >= idle.sum(axis=0)).all()


def test_ticks_that_take_no_time_are_no_bubble() -> None:
    """The first stage has nothing to differentiate: its backward tasks take no cycles."""
    configured(2)
    elements = infeed(zeros(8, 16))

    def model(weights: Any) -> Any:
        def optimizer(loss: Any) -> Any:
            return ipu.pipelining_ops.OptimizerFunctionOutput(optax.sgd(0.1), loss)

        return pipeline(
            [lambda w, x, y: (x, y), lambda w, x, y: jnp.mean((x @ w - y) ** 2)],
            4,
            infeed_queue=elements,
            outfeed_queue=outfeed(),
            optimizer_function=optimizer,
            variables=weights,
            pipeline_schedule=schedules.gpipe,
        )

    report = report_of(model, struct(16, 16))
    found, lines = check(report), report.pipeline
    assert lines is not None
    cycles = lines.stage_cycles
    assert cycles[0, "bwd"] == 0
    # The second IPU has no task in two ticks, one of which takes no time.
    assert found["bubble"][1] == cycles[0, "fwd"]
    assert lines.bubble_fraction == pytest.approx(2 / 10)


@pytest.mark.parametrize(
    "options",
    [
        {"repeat_count": 3},
        {"offload_weight_update_variables": True},
        {"recomputation_mode": ipu.pipelining_ops.RecomputationMode.RecomputeThenBackpropagate},
    ],
    ids=str,
)
def test_pipelines_in_loops_and_with_offloading_add_up(options: dict[str, Any]) -> None:
    configured(2)
    model, args = training(2, 4, **options)
    found = check(report_of(model, *args))
    assert found["update"].all()


def test_a_pipeline_that_runs_again_has_its_bubble_again() -> None:
    configured(2)
    bubbles: list[np.ndarray] = []
    for times in (1, 3):
        model, args = training(2, 4, repeat_count=times)
        bubbles.append(check(report_of(model, *args))["bubble"])
    assert (bubbles[1] == 3 * bubbles[0]).all()


def test_pipelines_of_several_stages_on_an_ipu_add_up() -> None:
    configured(2)
    model, args = training(4, 8, device_mapping=[0, 1, 0, 1])
    assert check(report_of(model, *args))["bubble"].all()


def test_replicas_copy() -> None:
    configured(2)

    def step(weights: Any, x: Any) -> Any:
        gradient = ipu.cross_replica_ops.cross_replica_sum(jax.grad(loss_of)(weights, x))
        return weights - 0.1 * gradient

    lowered = ipu.compile(step, replicas=2).lower(struct(2, 32, 32), struct(2, 8, 32))
    found = check(lowered.report())
    assert found["copies"].all()
    assert not found["imbalance"].any()


@pytest.mark.parametrize("size", [16, 256])
@pytest.mark.parametrize("overlaps", [False, True])
def test_queues_are_the_hosts_where_nothing_hides_them(size: int, overlaps: bool) -> None:
    configured(io_tiles__num_io_tiles=64, io_tiles__place_ops_on_io_tiles=overlaps)
    elements = infeed(zeros(size, size))

    def body(total: Any, x: Any, y: Any) -> Any:
        for _ in range(4):
            x = jnp.sin(x)
        return total + x @ y

    def model(x: Any) -> Any:
        return ipu.loops.repeat(5, body, [x], elements)

    report = report_of(model, struct(size, size))
    found, host = check(report), report.busy_cycles["host"]
    assert (found["host"] < host).all() if overlaps else (found["host"] == host).all()


def test_loops_and_branches_that_only_values_decide_on_add_up() -> None:
    configured(2)

    def model(x: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            x = jax.lax.while_loop(lambda c: jnp.sum(c) < 9, lambda c: c + 1, x)
        with ipu.scopes.ipu_shard(1):
            return jax.lax.cond(jnp.sum(x) > 0, jnp.sin, lambda y: jnp.tanh(y @ y), x)

    check(report_of(model, struct(32, 32)))


def test_the_report_keeps_its_breakdown() -> None:
    configured(2)
    model, args = training(2, 4)
    report = report_of(model, *args)
    read = Report.from_dict(report.to_dict()).breakdown
    assert read is not None
    assert report.breakdown is not None
    assert all((read[cause] == report.breakdown[cause]).all() for cause in machine.CAUSES)
    data = report.to_dict()
    data["breakdown"]["work"][0] += 1
    with pytest.raises(ValueError, match="causes that do not add up"):
        Report.from_dict(data)
    del data["breakdown"]
    older = Report.from_dict(data)
    assert older.breakdown is None
    assert Report.from_dict(older.to_dict()).breakdown is None
