"""What is offloaded is off the tiles in every loop, and moves only for weight updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.report import Report
from tests.ipujax.reporting import configured, f32, struct, training

SIZE = 30_000
MOMENTS = 2 * 4 * SIZE  # bytes: two of Adam, of one leaf
PARAMS = {"w": struct(SIZE)}
STEPS, UPDATES = 8, 2
OPTIMIZERS = ipu.optimizers


def optimizer(kind: str, offload: bool | None, **more: Any) -> Any:
    return getattr(OPTIMIZERS, kind)(optax.adam(0.1), STEPS // UPDATES, offload, **more)


def step_of(opt: Any) -> Callable[..., Any]:
    def step(params: Any, state: Any) -> Any:
        updates, state = opt.update(jax.tree.map(lambda w: 2 * w - 1, params), state, params)
        return optax.apply_updates(params, updates), state

    return step


def repeated(opt: Any) -> Callable[..., Any]:
    return lambda params, state: ipu.loops.repeat(STEPS, step_of(opt), [params, state])


def nested(opt: Any) -> Callable[..., Any]:
    def inner(params: Any, state: Any) -> Any:
        return ipu.loops.repeat(STEPS // UPDATES, step_of(opt), [params, state])

    return lambda params, state: ipu.loops.repeat(UPDATES, inner, [params, state])


def scanned(opt: Any) -> Callable[..., Any]:
    def inner(carry: Any, _: Any) -> Any:
        return tuple(ipu.loops.repeat(STEPS // UPDATES, step_of(opt), list(carry))), None

    return lambda params, state: jax.lax.scan(inner, (params, state), None, length=UPDATES)[0]


def begun_inside(opt: Any) -> Callable[..., Any]:
    return lambda params, _: ipu.loops.repeat(STEPS, step_of(opt), [params, opt.init(params)])


def report_of(opt: Any, form: Callable[..., Any]) -> Report:
    run: Any = ipu.compile(form(opt))
    return run.lower(PARAMS, jax.eval_shape(opt.init, PARAMS)).report()


def remote_steps(report: Report) -> int:
    return sum(step.kind == "remote" for step in report.steps)


@pytest.mark.parametrize("form", [repeated, nested, scanned])
@pytest.mark.parametrize("offload", [None, True])
def test_loops(form: Callable[..., Any], offload: bool | None) -> None:
    configured()
    kind = "GradientAccumulationOptimizerV2"
    off, on_tiles = (report_of(optimizer(kind, way), form) for way in (offload, False))
    held = [int(report.memory.by_category["variables"]) for report in (off, on_tiles)]
    assert held[1] - held[0] == MOMENTS
    assert off.memory.remote_bytes.tolist() == [MOMENTS]
    assert (remote_steps(off), remote_steps(on_tiles)) == (4 * UPDATES, 0)


def test_state_that_the_program_makes_is_stored_before_the_loop() -> None:
    configured()
    kind = "GradientAccumulationOptimizerV2"
    off, on_tiles = (report_of(optimizer(kind, way), begun_inside) for way in (None, False))
    assert (remote_steps(off), remote_steps(on_tiles)) == (4 * UPDATES + 2, 0)
    assert off.memory.remote_bytes.tolist() == [MOMENTS]


@pytest.mark.parametrize("sharded", [False, True])
def test_replicas(sharded: bool) -> None:
    configured(2)
    kind = "CrossReplicaGradientAccumulationOptimizerV2"
    more = {"replicated_optimizer_state_sharding": sharded}
    off = report_of(optimizer(kind, True, **more), repeated)
    on_tiles = report_of(optimizer(kind, False), repeated)
    held = [int(report.memory.by_category["variables"]) for report in (off, on_tiles)]
    assert held[1] - held[0] == MOMENTS
    assert off.memory.remote_bytes.tolist() == [MOMENTS // 2 if sharded else MOMENTS]


def test_each_replica_keeps_its_part_of_the_state_on_its_tiles() -> None:
    """Of two replicas; parts of single tensors are rounded up to whole elements."""
    found: list[Any] = []
    ways: Any = ({}, {"replicated_optimizer_state_sharding": "on_tiles"})
    for way in ways:
        configured(4)
        train, args = training(2, 4, width=128, repeat_count=3, **way)
        found.append(ipu.compile(train).lower(*args).report())
    _, sharded = found
    assert sharded.replication_factor == 2
    assert not sharded.memory.remote_bytes.any()
    moments = 2 * 2 * 128 * 128 * 4
    held = [report.memory.by_category["variables"] for report in found]
    assert held[0] - held[1] == pytest.approx(moments / 2, rel=0.02)


def test_state_that_a_loop_reads_itself_stays_and_moves_nowhere() -> None:
    """As in the original, which offloads what nothing but weight updates reads."""
    configured()
    opt = optimizer("GradientAccumulationOptimizerV2", True)

    def step(params: Any, state: Any) -> Any:
        decayed = jax.tree.map(lambda x: x, state.inner_state)
        halved = (decayed[0]._replace(mu={"w": decayed[0].mu["w"] * 0.5}), *decayed[1:])
        return step_of(opt)(params, state._replace(inner_state=halved))

    lowered = ipu.compile(lambda p, s: ipu.loops.repeat(STEPS, step, [p, s])).lower(
        PARAMS, jax.eval_shape(opt.init, PARAMS)
    )
    report = lowered.report()
    assert report.memory.remote_bytes.tolist() == [MOMENTS // 2]
    assert remote_steps(report) == 2 * UPDATES


def test_pipelines_in_loops_leave_their_state_where_it_is() -> None:
    configured(2)
    train, (weights,) = training(2, 4, width=128, offload_weight_update_variables=True)
    state = jax.eval_shape(optax.adam(0.1).init, weights)
    once = ipu.compile(lambda w, s: train(w, optimizer_state=s)).lower(weights, state).report()
    looped = ipu.compile(
        lambda w, s: ipu.loops.repeat(3, lambda w, s: train(w, optimizer_state=s), [w, s])
    )
    often = looped.lower(weights, state).report()
    assert often.memory.remote_bytes.tolist() == once.memory.remote_bytes.tolist()
    assert remote_steps(often) == 3 * remote_steps(once)
    held = [report.memory.by_category["variables"] for report in (once, often)]
    assert held[0] == held[1]


@pytest.mark.parametrize("argument", ["replicated_weight_sharding", "offload_weights"])
def test_weights_that_are_shared_out_or_offloaded_are_not_whole_on_the_tiles(argument: str) -> None:
    configured(4)
    fn, args = training(2, 4, width=128, **{argument: True})
    shared = ipu.compile(fn).lower(*args).report()
    fn, args = training(2, 4, width=128)
    whole = ipu.compile(fn).lower(*args).report()
    saved = whole.memory.by_category["variables"] - shared.memory.by_category["variables"]
    weights = 2 * 4 * 128 * 128
    assert saved == (weights // 2 if argument == "replicated_weight_sharding" else weights)


@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("form", [repeated, nested, begun_inside])
def test_numbers_are_those_of_state_on_the_tiles(form: Callable[..., Any], engine: str) -> None:
    configured()
    params = {"w": np.linspace(-1, 1, SIZE, dtype=f32)}
    results = []
    for offload in (True, False):
        opt = optimizer("GradientAccumulationOptimizerV2", offload)
        results.append(ipu.compile(form(opt), engine=engine)(params, opt.init(params)))
    jax.tree.map(np.testing.assert_array_equal, *results)
