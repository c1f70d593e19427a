"""Schedules that users register are taken wherever a schedule's name is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax import schedules
from ipujax.errors import PlanError
from ipujax.schedules import ScheduleError
from lowering.schedules import schedule_registry


@pytest.fixture(autouse=True)
def forget_registered() -> Iterator[None]:
    before = dict(schedule_registry._SCHEDULES)
    yield
    schedule_registry._SCHEDULES.clear()
    schedule_registry._SCHEDULES.update(before)


def all_forward_first(stages: int, micro_batches: int) -> list[list[str]]:
    return [[f"{s}{p}{m}" for p in "FB" for m in range(micro_batches)] for s in range(stages)]


def loss(params: Any, x: Any) -> Any:
    for weight in params:
        x = jnp.tanh(x @ weight)
    return jnp.mean(x**2)


ARGS = [np.eye(4, dtype=np.float32)] * 4, np.linspace(0, 1, 32, dtype=np.float32).reshape(8, 4)


def test_names_are_those_of_ipujax_and_registered_ones() -> None:
    before = schedules.names()
    assert {"gpipe", "one_f_one_b", "grouped"} <= {*before}
    schedules.register("forward_first", all_forward_first)
    assert schedules.names() == (*before, "forward_first")
    schedules.register("forward_first", schedules.gpipe)
    assert schedules.names() == (*before, "forward_first")


def test_build_takes_names() -> None:
    schedules.register("forward_first", all_forward_first)
    built = schedules.build("forward_first", stages=2, micro_batches=4, training=True)
    assert [*built.ticks] == [*schedules.gpipe(2, 4).ticks]
    named = schedules.build("gpipe", stages=2, micro_batches=4, training=True)
    assert named == schedules.gpipe(2, 4)


def test_pipelines_and_plans_take_names() -> None:
    schedules.register("forward_first", all_forward_first)
    grad_fn = ipu.pipelining_ops.value_and_grad(
        loss, micro_batches=4, stages=2, schedule="forward_first"
    )
    found, wanted = ipu.compile(grad_fn)(*ARGS), jax.value_and_grad(loss)(*ARGS)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-6)
    plan = ipu.plan(loss, *ARGS, ipus=2, micro_batches=4, schedules="forward_first")
    like_gpipe = ipu.plan(loss, *ARGS, ipus=2, micro_batches=4, schedules="gpipe")
    assert plan.schedule == "forward_first"
    assert plan.seconds == like_gpipe.seconds


def test_split_backward_passes_are_noticed() -> None:
    schedules.register("split", schedules.zero_bubble)
    costs = ipu.planning.Costs([1, 1], [1, 1])
    with pytest.raises(PlanError, match="split splits the backward pass"):
        ipu.planning.search(costs, ipus=2, micro_batches=4, schedules="split")
    costs = ipu.planning.Costs([1, 1], [1, 1], [1, 1])
    found = ipu.planning.search(costs, ipus=2, micro_batches=4, schedules="split")
    assert found.seconds == 3 * 4 + 1


@pytest.mark.parametrize(
    ("name", "function", "words"),
    [
        ("gpipe", all_forward_first, "a schedule of ipujax is named 'gpipe'"),
        ("my schedule", all_forward_first, "letters, digits"),
        (3, all_forward_first, "is a str"),
        ("mine", 3, "3 as a schedule"),
    ],
)
def test_what_cannot_be_registered(name: Any, function: Any, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        schedules.register(name, function)


def test_names_that_nothing_has() -> None:
    with pytest.raises(ScheduleError, match="no schedule is named 'forward_first'"):
        schedules.build("forward_first", stages=2, micro_batches=4, training=True)
