"""One model of several kinds, alone, accumulating and pipelined: `models_comparison_test.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipujax.keras import PipelineStage
from tests.ipujax.keras.twins import alike, keras, on_ipus, values

X = np.random.default_rng(6).random((48, 4), np.float32)
Y = np.full((48, 4), 0.3, np.float32)


def layers() -> list[Any]:
    return [
        keras.layers.Dense(
            4, activation="relu", kernel_initializer=keras.initializers.Orthogonal(seed=seed)
        )
        for seed in range(3)
    ]


def trained(model: Any, steps: int, batch: int) -> Any:
    """History, weights and predictions after two epochs."""
    model.compile("adam", "mae", steps_per_execution=steps)
    history = model.fit(X, Y, batch_size=batch, epochs=2, shuffle=False, verbose=0).history
    return history, values(model.weights), model.predict(X, batch_size=2, verbose=0)


def functional(stages: list[int] | None = None) -> Any:
    inputs = outputs = keras.Input((4,))
    for layer, stage in zip(layers(), stages or [None] * 3, strict=True):
        if stage is None:
            outputs = layer(outputs)
        else:
            with PipelineStage(stage):
                outputs = layer(outputs)
    return keras.Model(inputs, outputs)


@pytest.mark.exhaustive
def test_sequential_and_pipeline() -> None:
    alone = trained(keras.Sequential([keras.Input((4,)), *layers()]), 1, 24)
    with on_ipus(2):
        accumulating = keras.Sequential([keras.Input((4,)), *layers()])
        accumulating.set_gradient_accumulation_options(6)
        alike(trained(accumulating, 12, 2), alone)
        pipeline = keras.Sequential([keras.Input((4,)), *layers()])
        pipeline.set_pipeline_stage_assignment([0, 0, 1])
        pipeline.set_pipelining_options(gradient_accumulation_steps_per_replica=12)
        alike(trained(pipeline, 24, 2), alone)


@pytest.mark.exhaustive
def test_functional_and_pipeline() -> None:
    """Stages that come back to the IPU of the first."""
    with on_ipus(4):
        accumulating = functional()
        accumulating.set_gradient_accumulation_options(6)
        expected = trained(accumulating, 24, 1)
        pipeline = functional([0, 1, 2])
        pipeline.set_pipelining_options(
            gradient_accumulation_steps_per_replica=12, device_mapping=[1, 0, 1]
        )
        alike(trained(pipeline, 24, 1), expected)


def test_functional_and_sequential() -> None:
    with on_ipus():
        alike(
            trained(functional(), 4, 4),
            trained(keras.Sequential([keras.Input((4,)), *layers()]), 4, 4),
            rtol=0,
            atol=0,
        )
