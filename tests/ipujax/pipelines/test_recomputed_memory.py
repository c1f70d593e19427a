"""The memory of pipelines that compute activations again, with checkpoints and without."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ipujax as ipu
from ipujax.pipelining_ops import (
    PipelineSchedule,
    RecomputationMode,
    pipeline,
    recomputation_checkpoint,
)
from tests.ipujax.feeding import outfeed
from tests.ipujax.pipelining import sgd
from tests.ipujax.reporting import configured, struct

WIDTH, ROWS, COUNT = 64, 4096, 12
ACTIVATIONS = {"tanh": jnp.tanh, "gelu": jax.nn.gelu, "relu": jax.nn.relu, "sin": jnp.sin}
Layers = list[tuple[str, int, int]]  # of each stage: activation, its width in widths, their number


def stage_of(number: int, layers: Layers, checkpoints: bool) -> Any:
    """Equal layers with one hidden activation each, and a checkpoint in front of each."""
    activation, _, count = layers[number]

    def stage(v: Any, x: Any) -> Any:
        for index in range(count):
            x = recomputation_checkpoint(x) if checkpoints else x
            up, down = v[f"{number}.{index}"]
            x = x + ACTIVATIONS[activation](x @ up) @ down
        return x

    return stage


def variables_of(layers: Layers) -> Any:
    return {
        f"{number}.{index}": (struct(WIDTH, times * WIDTH), struct(times * WIDTH, WIDTH))
        for number, (_, times, count) in enumerate(layers)
        for index in range(count)
    }


def profile_of(layers: Layers, checkpoints: bool, schedule: PipelineSchedule) -> Any:
    """What a report says of a pipeline with two stages of layers, and the loss on the last IPU."""
    configured(2, allow_recompute=True)
    stages = [stage_of(number, layers, checkpoints) for number in range(2)]

    def train(variables: Any, x: Any) -> Any:
        return pipeline(
            [*stages, lambda _, x: (x**2).mean()],
            COUNT,
            inputs=[x],
            outfeed_queue=outfeed(),
            variables=variables,
            optimizer_function=sgd(0.1),
            pipeline_schedule=schedule,
            recomputation_mode=RecomputationMode.RecomputeAndBackpropagateInterleaved,
            device_mapping=[0, 1, 1],
        )

    return ipu.compile(train).lower(variables_of(layers), struct(ROWS, WIDTH)).report()


def check_that_checkpoints_pay(layers: Layers, schedule: PipelineSchedule) -> None:
    """Layers that are far wider inside than what passes between them, as a transformer's are."""
    without, with_checkpoints = (profile_of(layers, each, schedule) for each in (False, True))
    fuller = without.memory.tile_peak_bytes.max(1), with_checkpoints.memory.tile_peak_bytes.max(1)
    assert (fuller[1] <= fuller[0]).all()
    assert fuller[1][1] < fuller[0][1]  # on IPU 1, whose peak is in its backward tasks
    assert with_checkpoints.cycles <= without.cycles


LAYERS = st.lists(
    st.tuples(st.sampled_from(sorted(ACTIVATIONS)), st.integers(4, 8), st.integers(2, 4)),
    min_size=2,
    max_size=2,
)
SCHEDULES = st.sampled_from([PipelineSchedule.Sequential, PipelineSchedule.Grouped])


@settings(max_examples=4, deadline=None)
@given(LAYERS, SCHEDULES)
def test_checkpoints_never_raise_a_peak(layers: Layers, schedule: PipelineSchedule) -> None:
    check_that_checkpoints_pay(layers, schedule)


@pytest.mark.exhaustive
@settings(max_examples=30, deadline=None)
@given(LAYERS, SCHEDULES)
def test_checkpoints_never_raise_a_peak_of_many(layers: Layers, schedule: PipelineSchedule) -> None:
    check_that_checkpoints_pay(layers, schedule)
