"""Pipeline stages of subclassed models; after the original's `model_pipeline_api_test.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("keras")

import keras
from keras import layers

from ipujax.errors import PipelineError, ScopeError
from ipujax.keras import (
    ModelLayerPipelineStageAssignment,
    PipelineStage,
    get_pipeline_stage_assignment,
    has_pipeline_stages,
    reset_pipeline_stage_assignment,
    set_pipeline_stage_assignment,
)
from tests.ipujax.keras.building import matmul_stages, stages, traced


class Calling(keras.Model):
    """A subclassed model whose `call` is a function of its layers."""

    def __init__(self, call: Any, **parts: Any):
        super().__init__()
        self.run = call
        for name, part in parts.items():
            setattr(self, name, part)

    def call(self, x: Any) -> Any:
        return self.run(self, x)


def built(call: Any, **parts: Any) -> Any:
    model = Calling(call, **parts)
    model(np.ones((2, 8), np.float32))
    return model


def two_stages(model: Any, x: Any) -> Any:
    with PipelineStage(0):
        x = model.first(x)
    with PipelineStage(1):
        return model.second(keras.ops.tanh(x))


def dense_pair() -> dict[str, Any]:
    return {"first": layers.Dense(8), "second": layers.Dense(8)}


def test_not_known_before_the_first_trace() -> None:
    model = Calling(two_stages, **dense_pair())
    with pytest.raises(PipelineError, match="not known yet: its `call` gives them"):
        get_pipeline_stage_assignment(model)
    assert not has_pipeline_stages(model)


def test_scopes_in_call() -> None:
    model = built(two_stages, **dense_pair())
    found = traced(model, (2, 8))
    assert ("tanh", 1) in found
    assert [stage for name, stage in found if name == "dot_general"] == [0, 1]
    assert has_pipeline_stages(model)
    assignment = get_pipeline_stage_assignment(model)
    assert all(isinstance(entry, ModelLayerPipelineStageAssignment) for entry in assignment)
    assert [entry.layer for entry in assignment] == [model.first, model.second]
    assert stages(model) == [0, 1]
    assert matmul_stages(model, (2, 8)) == [0, 1]
    assert stages(model) == [0, 1]
    reset_pipeline_stage_assignment(model)
    assert not has_pipeline_stages(model)


def test_a_layer_called_in_several_stages() -> None:
    def call(model: Any, x: Any) -> Any:
        for stage in range(3):
            with PipelineStage(stage):
                x = model.shared(x)
        return x

    model = built(call, shared=layers.Dense(8))
    assert matmul_stages(model, (2, 8)) == [0, 1, 2]
    entries = get_pipeline_stage_assignment(model)
    assert [(entry.node_index, entry.pipeline_stage) for entry in entries] == [
        (0, 0),
        (1, 1),
        (2, 2),
    ]


def test_layers_built_in_scopes() -> None:
    parts: dict[str, Any] = {}
    with PipelineStage(0):
        parts["first"] = layers.Dense(8)
    with PipelineStage(1):
        parts["second"] = layers.Dense(8)
    model = built(lambda model, x: model.second(model.first(x)), **parts)
    assert matmul_stages(model, (2, 8)) == [0, 1]

    def call(model: Any, x: Any) -> Any:
        with PipelineStage(0):
            return model.second(model.first(x))

    assert matmul_stages(built(call, **parts), (2, 8)) == [0, 0]


def test_set_points_to_the_scope() -> None:
    model = built(two_stages, **dense_pair())
    with pytest.raises(PipelineError, match=r"cannot be set: only its `call` knows[\s\S]*Pipeline"):
        set_pipeline_stage_assignment(model, [0, 1])


def test_partial_scopes() -> None:
    def call(model: Any, x: Any) -> Any:
        with PipelineStage(0):
            x = model.first(x)
        return model.second(x)

    model = built(call, first=layers.Dense(8), second=layers.Dense(8, name="left_out"))
    with pytest.raises(PipelineError, match=r"layer 'left_out' .* has not been assigned to one"):
        traced(model, (2, 8))


def test_empty_stages() -> None:
    def call(model: Any, x: Any) -> Any:
        with PipelineStage(0):
            x = model.first(x)
        with PipelineStage(2):
            return model.second(x)

    with pytest.raises(PipelineError, match=r"stages \[1\] have none"):
        traced(built(call, **dense_pair()), (2, 8))


def test_a_stage_without_layers() -> None:
    def call(model: Any, x: Any) -> Any:
        with PipelineStage(0):
            x = model.first(x)
        with PipelineStage(1):
            return keras.ops.exp(x)

    assert traced(built(call, first=layers.Dense(8)), (2, 8))[-1] == ("exp", 1)


@pytest.mark.parametrize("stage", [-1, 1.0, "0", True, None])
def test_stages_are_integers_from_0(stage: Any) -> None:
    with pytest.raises(ScopeError, match="the stage of PipelineStage is"):
        PipelineStage(stage)


def test_scopes_must_not_be_nested() -> None:
    with (
        PipelineStage(0),
        pytest.raises(ScopeError, match="inside pipeline stage 0: pipeline stages must not be"),
        PipelineStage(1),
    ):
        pass


def test_a_scope_in_the_call_of_a_layer_that_has_a_stage() -> None:
    def call(model: Any, x: Any) -> Any:
        with PipelineStage(0):
            return model.inner(x)

    inner = built(two_stages, **dense_pair())
    with pytest.raises(ScopeError, match=r"PipelineStage\(0\) inside pipeline stage 0"):
        built(call, inner=inner)


def test_a_scope_may_be_entered_again_and_ends_with_an_error() -> None:
    scope = PipelineStage(0)
    with pytest.raises(KeyError), scope:
        raise KeyError
    with scope:
        pass
    with PipelineStage(1):
        pass


def test_models_without_stages_are_traced_as_ever() -> None:
    model = built(lambda model, x: model.second(model.first(x)), **dense_pair())
    assert matmul_stages(model, (2, 8)) == [None, None]
    assert stages(model) == [None, None]
    assert not has_pipeline_stages(model)
