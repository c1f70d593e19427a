"""`value_and_grad` with stages: the numbers of `jax.value_and_grad`, whatever the model does."""

from __future__ import annotations

from typing import Any

import jax
import pytest

import ipujax as ipu
from ipujax.pipelining_ops import PipelineSchedule, value_and_grad
from lowering import schedules
from tests.ipujax.feeding import configure
from tests.ipujax.pipelining import ENGINES
from tests.ipujax.staging import mlp_batch, mlp_loss, mlp_params, relative_distance

MOST = 1e-6
"""The largest relative distance of gradients in float32."""


@pytest.mark.parametrize("engine", ENGINES)
def test_two_stages_have_the_numbers_of_plain_jax(engine: str) -> None:
    configure(2)
    params, batch = mlp_params(), mlp_batch()
    step = ipu.compile(value_and_grad(mlp_loss, micro_batches=4), engine=engine)
    assert (
        relative_distance(step(params, batch), jax.value_and_grad(mlp_loss)(params, batch)) < MOST
    )


@pytest.mark.parametrize("transform", [jax.jit, lambda function: function], ids=["jit", "eager"])
def test_plain_jax_runs_the_same_loop(transform: Any) -> None:
    params, batch = mlp_params(), mlp_batch()
    step = transform(value_and_grad(mlp_loss, micro_batches=4))
    assert (
        relative_distance(step(params, batch), jax.value_and_grad(mlp_loss)(params, batch)) < MOST
    )


NAMES = tuple(schedule.name for schedule in schedules.list_schedules())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("schedule", [*NAMES, *PipelineSchedule, schedules.gpipe])
def test_every_schedule_has_the_same_numbers(schedule: Any) -> None:
    configure(4)
    params, batch = mlp_params(4), mlp_batch(32)
    mapping = [0, 1, 0, 1] if schedule == "interleaved_one_f_one_b" else None
    step = value_and_grad(mlp_loss, micro_batches=8, schedule=schedule, device_mapping=mapping)
    result = ipu.compile(step, engine="replay")(params, batch)
    assert relative_distance(result, jax.value_and_grad(mlp_loss)(params, batch)) < MOST


def test_each_gradient_is_where_its_stage_is() -> None:
    configure(2)
    params, batch = mlp_params(), mlp_batch()
    text = ipu.compile(value_and_grad(mlp_loss, micro_batches=4)).lower(params, batch).as_text()
    moved = [line for line in text.splitlines() if "copy ipu" in line and "-> ipu" in line]
    assert len(moved) == 2  # an activation, and its gradient
