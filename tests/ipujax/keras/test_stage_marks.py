"""The marks of stages in the trace of Keras's own training step."""

from __future__ import annotations

import threading
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("keras")

import keras
from keras import layers

from ipujax.errors import PipelineError
from ipujax.keras import (
    PipelineStage,
    has_pipeline_stages,
    set_pipeline_stage_assignment,
    trace_in_stages,
)
from lowering import marks
from lowering.jaxprs import jaxpr
from tests.ipujax.keras.building import matmul_stages


def training_step(model: Any, *shape: int) -> set[tuple[str, int | None, bool]]:
    """The primitives of a training step, each with its stage and whether it runs backward."""
    batch = np.ones(shape, np.float32), np.ones((shape[0], 1), np.float32)
    model.compile("sgd", "mse")
    model._symbolic_build(data_batch=batch)
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([variable.value for variable in group] for group in groups)
    with trace_in_stages(model):
        closed = jax.make_jaxpr(model.train_step)(state, batch)
    found: set[tuple[str, int | None, bool]] = set()
    for equation in closed.jaxpr.eqns:
        read = marks.read_marks(jaxpr.name_stack(equation))
        found.add((equation.primitive.name, read.stage, read.backward))
    return found


def of(found: set[tuple[str, int | None, bool]], name: str) -> set[tuple[int | None, bool]]:
    return {(stage, backward) for each, stage, backward in found if each == name}


@pytest.mark.exhaustive
def test_forward_and_backward_passes_are_in_their_stages() -> None:
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    set_pipeline_stage_assignment(model, [0, 1, 2, 3, 3])
    found = training_step(model, 2, 8, 8, 3)
    assert of(found, "conv_general_dilated") == {(0, False), (0, True)}
    assert {(1, False), (1, True)} <= of(found, "rsqrt") | of(found, "mul")
    assert of(found, "random_bits") | of(found, "select_n") >= {(2, False)}
    assert of(found, "dot_general") == {(3, False), (3, True)}


@pytest.mark.exhaustive
def test_recurrent_layers() -> None:
    first = keras.Input((4, 3))
    with PipelineStage(0):
        x = layers.LSTM(4, return_sequences=True)(first)
    with PipelineStage(1):
        x = layers.Dense(1)(layers.GRU(3)(x))
    found = training_step(keras.Model(first, x), 2, 4, 3)
    assert of(found, "scan") == {(0, False), (0, True), (1, False), (1, True)}


def test_a_layer_that_keras_recomputes() -> None:
    with keras.RematScope(mode="full"):
        hidden = layers.Dense(4, activation="tanh")
    model = keras.Sequential([keras.Input((4,)), hidden, layers.Dense(1)])
    set_pipeline_stage_assignment(model, [0, 1])
    found = training_step(model, 2, 4)
    assert {stage for stage, _ in of(found, "remat2") | of(found, "checkpoint")} == {0}


def test_other_threads_have_stages_of_their_own() -> None:
    outside: list[list[int | None]] = []
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4)])

    def trace() -> None:
        outside.append(matmul_stages(model, (2, 4)))

    with PipelineStage(0):
        thread = threading.Thread(target=trace)
        thread.start()
        thread.join()
    assert outside == [[None]]


def test_without_staged_a_graph_writes_no_marks() -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4)])
    set_pipeline_stage_assignment(model, [0])
    closed = jax.make_jaxpr(model.stateless_call)(
        [x.value for x in model.trainable_variables], [], np.ones((2, 4), np.float32)
    )
    assert all("stage" not in jaxpr.name_stack(equation) for equation in closed.jaxpr.eqns)


def test_a_failed_trace_leaves_nothing_behind() -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4)])
    set_pipeline_stage_assignment(model, [0])
    with pytest.raises(KeyError), trace_in_stages(model):
        raise KeyError
    test_without_staged_a_graph_writes_no_marks()


def test_a_graph_with_a_call_of_its_own_is_a_subclassed_model() -> None:
    class Doubled(keras.Model):
        def call(self, x: Any) -> Any:
            with PipelineStage(0):
                return super().call(x) * 2.0

    first = keras.Input((4,))
    model = Doubled(first, layers.Dense(4)(first))
    with pytest.raises(PipelineError, match="only its `call` knows"):
        set_pipeline_stage_assignment(model, [0])
    assert matmul_stages(model, (2, 4)) == [0]
    assert has_pipeline_stages(model)
