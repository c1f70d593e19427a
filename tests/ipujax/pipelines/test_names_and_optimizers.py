"""What pipelines take for short: a schedule by its name, and an optimizer without a function."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax import schedules
from ipujax.errors import PipelineError
from ipujax.pipelining_ops import PipelineSchedule, value_and_grad
from tests.ipujax.feeding import configure, infeed, outfeed
from tests.ipujax.pipelining import f32, run_pipeline, sgd

STAGES = [lambda w, x: w["a"] * x, lambda w, x: jnp.sin(w["b"] * x)]
VARIABLES = {"a": f32(0.5), "b": f32(2)}


def program_text(schedule: Any) -> str:
    """The text of a pipeline with a schedule, without the numbers of its queues."""
    configure(2)

    def model(variables: Any) -> Any:
        return ipu.pipelining_ops.pipeline(
            STAGES,
            4,
            infeed_queue=infeed([f32(1)] * 4),
            outfeed_queue=outfeed(),
            optimizer_function=sgd(0.1),
            pipeline_schedule=schedule,
            variables=variables,
        )

    return re.sub(r"feed_\d+", "feed", ipu.compile(model).lower(VARIABLES).as_text())


@pytest.mark.parametrize(
    ("names", "schedule"),
    [
        (["grouped", "Grouped", "GROUPED"], PipelineSchedule.Grouped),
        (["sequential"], PipelineSchedule.Sequential),
        (["one_f_one_b", "1F1B", "1f1b", "one-f-one-b"], schedules.one_f_one_b),
        (["gpipe", "GPipe"], schedules.gpipe),
        (["zero_bubble", "ZeroBubble"], schedules.zero_bubble),
    ],
)
def test_a_schedule_by_its_name(names: list[str], schedule: Any) -> None:
    expected = program_text(schedule)
    for name in names:
        assert program_text(name) == expected


def test_names_of_value_and_grad_and_of_compare_are_the_same() -> None:
    configure(2)

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        with ipu.scopes.pipeline_stage(0):
            h = w * x
        with ipu.scopes.pipeline_stage(1):
            return jnp.mean(jnp.sin(h))

    w, x = jnp.float32(0.3), jnp.arange(8, dtype=jnp.float32)
    for name in ("1F1B", "one_f_one_b", "Grouped"):
        step = ipu.compile(value_and_grad(loss, micro_batches=4, schedule=name))
        value, gradient = step(w, x)
        expected = jax.value_and_grad(loss)(w, x)
        np.testing.assert_allclose([value, gradient], expected, rtol=1e-6)
    with pytest.raises(PipelineError, match="did you mean 'one_f_one_b'"):
        value_and_grad(loss, micro_batches=4, schedule="one_f_one_bee")


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_an_optimizer_alone_trains_as_the_function_that_gives_it(engine: str) -> None:
    configure(2)
    data = [f32(k / 3) for k in range(8)]
    results = [
        run_pipeline(
            STAGES,
            4,
            engine=engine,
            variables=VARIABLES,
            data=lambda: iter(data),
            repeat_count=2,
            optimizer_function=optimizer,
        )
        for optimizer in (optax.sgd(0.1, 0.9), sgd(0.1, 0.9))
    ]
    (alone, alone_sent), (function, function_sent) = results
    jax.tree.map(np.testing.assert_array_equal, alone, function)
    np.testing.assert_array_equal(alone_sent, function_sent)
    assert not np.array_equal(alone[0]["a"], VARIABLES["a"])
