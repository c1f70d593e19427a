"""Saved pipelines: all schedules, engines, training and inference, replicas."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline
from tests.ipujax.feeding import configure, infeed, outfeed
from tests.ipujax.pipelining import SCHEDULES, ones
from tests.ipujax.saving import ENGINES, again, compiled, same

f32 = np.float32


def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Micro-batches, in turn."""
    for k in itertools.count():
        yield np.full((2, 4), k % 5, f32) / 4, np.full((2,), k % 3, f32)


def first(params: Any, x: jax.Array, y: jax.Array) -> Any:
    return jnp.tanh(x @ params["a"]), y


def second(params: Any, h: jax.Array, y: jax.Array) -> jax.Array:
    return ((h @ params["b"] - y) ** 2).mean()


def optimizer(loss: jax.Array) -> OptimizerFunctionOutput:
    return OptimizerFunctionOutput(optax.sgd(0.1, momentum=0.9), loss)


def training(
    engine: str, schedule: Any, **options: Any
) -> tuple[Any, IPUInfeedQueue, Any, tuple[Any, Any]]:
    source, sink = infeed(batches), outfeed()
    params = {"a": ones(4, 3) / 5, "b": ones(3) / 3}
    state = optax.sgd(0.1, momentum=0.9).init(params)

    def model(params: Any, state: Any) -> Any:
        return pipeline(
            [first, second],
            8,
            infeed_queue=source,
            outfeed_queue=sink,
            optimizer_function=optimizer,
            pipeline_schedule=schedule,
            variables=params,
            optimizer_state=state,
            **options,
        )

    return compiled(model, params, state, engine=engine), source, sink, (params, state)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "schedule",
    [*SCHEDULES, ipu.schedules.one_f_one_b, ipu.schedules.zero_bubble],
    ids=lambda schedule: getattr(schedule, "__name__", str(schedule)),
)
def test_training(schedule: Any, engine: str, tmp_path: Path) -> None:
    configure(2)
    executable, source, sink, arguments = training(engine, schedule)
    other, own = infeed(batches), outfeed()
    loaded = again(executable, tmp_path, **{source.name: other, sink.name: own})
    for _ in range(2):
        same(loaded(*arguments), executable(*arguments))
        np.testing.assert_array_equal(own.dequeue(), sink.dequeue())
    assert loaded.as_text() == executable.as_text()
    assert loaded.report().pipeline is not None
    assert loaded.engine == executable.engine == engine


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ENGINES)
def test_replicas(engine: str, tmp_path: Path) -> None:
    configure(4)
    executable, source, sink, arguments = training(engine, PipelineSchedule.Grouped)
    other, own = infeed(batches), outfeed()
    loaded = again(executable, tmp_path, **{source.name: other, sink.name: own})
    same(loaded(*arguments), executable(*arguments))
    (losses,), (wanted,) = own.dequeue(), sink.dequeue()
    assert losses.shape == (8, 2)
    np.testing.assert_array_equal(losses, wanted)


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "options",
    [
        {"replicated_optimizer_state_sharding": True},
        {"offload_weights": True, "offload_weight_update_variables": True},
        {"offload_activations": True, "offload_gradient_accumulation_buffers": True},
    ],
    ids="+".join,
)
def test_what_is_put_away_between_uses(
    options: dict[str, bool], engine: str, tmp_path: Path
) -> None:
    configure(4)
    config = ipu.config.get_ipu_config()[0]
    config.allow_recompute = True
    config.configure_ipu_system()
    executable, source, sink, arguments = training(engine, PipelineSchedule.Grouped, **options)
    other, own = infeed(batches), outfeed()
    loaded = again(executable, tmp_path, **{source.name: other, sink.name: own})
    same(loaded(*arguments), executable(*arguments))
    np.testing.assert_array_equal(own.dequeue(), sink.dequeue())
    assert loaded.as_text() == executable.as_text()


@pytest.mark.fact("embedded_runtime.pipeline_flush")
@pytest.mark.parametrize("engine", ENGINES)
def test_each_call_gets_its_own_results(engine: str, tmp_path: Path) -> None:
    configure(2)
    sink = outfeed()

    def model(x: jax.Array) -> Any:
        return pipeline(
            [lambda x: x @ jnp.ones((2, 2)), lambda h: h.sum()],
            12,
            inputs=[x],
            outfeed_queue=sink,
            pipeline_schedule=PipelineSchedule.Grouped,
        )

    executable = compiled(model, np.ones((2, 2), f32), engine=engine)
    loaded = again(executable, tmp_path, **{sink.name: sink})
    for value in (1, 2):
        loaded(np.full((2, 2), value, f32))
        (results,) = sink.dequeue()
        np.testing.assert_array_equal(results, [8.0 * value] * 12)
