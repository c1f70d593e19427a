"""Pipeline stages of Sequential models; after the original's `sequential_pipeline_api_test.py`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("keras")

import keras
from keras import layers

from ipujax.errors import PipelineError, PipelineTypeError
from ipujax.keras import (
    PipelineStage,
    get_pipeline_stage_assignment,
    reset_pipeline_stage_assignment,
    set_pipeline_stage_assignment,
    trace_in_stages,
)
from tests.ipujax.keras.building import matmul_stages


def dense(count: int, *, built: bool = True) -> Any:
    first = [keras.Input((8,))] if built else []
    return keras.Sequential([*first, *(layers.Dense(8) for _ in range(count))])


@pytest.mark.parametrize("built", [True, False])
def test_get_set_reset(built: bool) -> None:
    model = dense(4, built=built)
    assert get_pipeline_stage_assignment(model) == [None] * 4
    set_pipeline_stage_assignment(model, [0, 1, 2, 3])
    assert get_pipeline_stage_assignment(model) == [0, 1, 2, 3]
    set_pipeline_stage_assignment(model, [0, 0, 1, 1])
    assert get_pipeline_stage_assignment(model) == [0, 0, 1, 1]
    model.build((None, 8))
    assert get_pipeline_stage_assignment(model) == [0, 0, 1, 1]
    assert matmul_stages(model, (2, 8)) == [0, 0, 1, 1]
    reset_pipeline_stage_assignment(model)
    assert get_pipeline_stage_assignment(model) == [None] * 4
    assert matmul_stages(model, (2, 8)) == [None] * 4


def test_adding_or_removing_a_layer_makes_the_assignment_invalid() -> None:
    model = dense(3)
    set_pipeline_stage_assignment(model, [0, 1, 2])
    model.add(layers.Dense(1))
    with pytest.raises(PipelineError, match=r"layers were added to model .*, or removed"):
        get_pipeline_stage_assignment(model)
    set_pipeline_stage_assignment(model, [0, 1, 2, 2])
    model.pop()
    with pytest.raises(PipelineError, match="reset_pipeline_stage_assignment"):
        matmul_stages(model, (2, 8))
    reset_pipeline_stage_assignment(model)
    assert get_pipeline_stage_assignment(model) == [None] * 3


@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ([0] * 3, r"length .* \(3\) does not match .* \(4\)"),
        ((0, 0, 1, 1), "needs to be a list, not tuple"),
        ([1, 1, 1, 1], r"stages \[0\] have none"),
        ([0, 1, 3, 3], r"stages \[2\] have none"),
        ([0, 1, 0, 1], "in pipeline stage 0 has a dependency on stage 1"),
        ([0, 0, 1, None], "has not been assigned to one"),
        ([None] * 4, "has not been assigned to one"),
        ([0, 0, 1, -1], "is -1, but must be at least 0"),
    ],
)
def test_what_cannot_be_set(assignment: Any, message: str, built: bool) -> None:
    model = dense(4, built=built)
    with pytest.raises(PipelineError, match=message):
        set_pipeline_stage_assignment(model, assignment)
    assert get_pipeline_stage_assignment(model) == [None] * 4


@pytest.mark.parametrize("entry", ["1", 1.0, True, [1], object()])
def test_entries_are_integers(entry: Any) -> None:
    with pytest.raises(PipelineTypeError, match="must be an integer"):
        set_pipeline_stage_assignment(dense(2), [0, entry])


def test_layers_built_in_scopes() -> None:
    model = keras.Sequential([keras.Input((8,))])
    for stage in (0, 1, 1, 2):
        with PipelineStage(stage):
            model.add(layers.Dense(8))
    assert get_pipeline_stage_assignment(model) == [0, 1, 1, 2]
    assert matmul_stages(model, (2, 8)) == [0, 1, 1, 2]


def test_a_layer_that_is_added_twice() -> None:
    shared = layers.Dense(8)
    model = keras.Sequential([keras.Input((8,)), shared, layers.Dense(8), shared])
    set_pipeline_stage_assignment(model, [0, 1, 2])
    assert matmul_stages(model, (2, 8)) == [0, 1, 2]


def test_a_model_that_keras_makes_no_graph_of() -> None:
    class Sum(layers.Layer):
        def call(self, x: Any) -> Any:
            return x["a"] + x["b"]

    model = keras.Sequential([Sum(), layers.Dense(4)])
    set_pipeline_stage_assignment(model, [0, 1])
    x = {name: np.ones((2, 4), np.float32) for name in "ab"}
    model(x)
    with (
        trace_in_stages(model),
        pytest.raises(PipelineError, match="Keras cannot make a graph of it"),
    ):
        jax.eval_shape(model, x)
    reset_pipeline_stage_assignment(model)
    with trace_in_stages(model):
        jax.eval_shape(model, x)
