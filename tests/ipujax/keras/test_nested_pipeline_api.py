"""Pipeline stages of models in models; after the original's `nested_pipeline_api_test.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("keras")

import keras
from keras import layers

from ipujax.errors import PipelineError
from ipujax.keras import (
    FunctionalLayerPipelineStageAssignment,
    PipelineStage,
    get_pipeline_stage_assignment,
    has_pipeline_stages,
    set_pipeline_stage_assignment,
)
from tests.ipujax.keras.building import matmul_stages, stages


def sequential(*parts: Any) -> Any:
    return keras.Sequential([keras.Input((8,)), *parts])


def functional(*parts: Any) -> Any:
    first = x = keras.Input((8,))
    for part in parts:
        x = part(x)
    return keras.Model(first, x)


class Subclassed(keras.Model):
    """A model that calls its parts, the i-th one in stage i."""

    def __init__(self, *parts: Any):
        super().__init__()
        self.parts = list(parts)

    def call(self, x: Any) -> Any:
        for stage, part in enumerate(self.parts):
            with PipelineStage(stage):
                x = part(x)
        return x


def fill(assignment: list[Any], first: int = 0) -> int:
    """Numbers every call of a layer; the next number is returned."""
    for index, entry in enumerate(assignment):
        if getattr(entry, "is_nested_model", False):
            first = fill(entry.pipeline_stage_assignments, first)
            continue
        if isinstance(entry, FunctionalLayerPipelineStageAssignment):
            entry.pipeline_stage = first
        else:
            assignment[index] = first
        first += 1
    return first


GRAPHS = [sequential, functional]


@pytest.mark.parametrize("inner", GRAPHS)
@pytest.mark.parametrize("middle", GRAPHS)
def test_three_levels_of_functional_models(
    inner: Callable[..., Any], middle: Callable[..., Any]
) -> None:
    deepest = inner(layers.Dense(8), layers.Dense(8))
    between = functional(layers.Dense(8), middle(deepest, layers.Dense(8)))
    model = functional(layers.Flatten(), between, layers.Dense(8))
    assert not has_pipeline_stages(model)
    assignment = get_pipeline_stage_assignment(model)
    fill(assignment)
    set_pipeline_stage_assignment(model, assignment)
    assert has_pipeline_stages(model)
    count = 6 if middle is functional else 5  # a Sequential has one number for a nested model
    found = matmul_stages(model, (2, 8))
    assert found == ([1, 2, 3, 4, 5] if count == 6 else [1, 2, 2, 3, 4])
    assert get_pipeline_stage_assignment(between)[0].pipeline_stage is None


def test_nested_models_in_sequential_ones() -> None:
    inner = sequential(layers.Dense(8), layers.Dense(8))
    graph = functional(layers.Dense(8), layers.Dense(8))
    model = sequential(layers.Dense(8), inner, graph)
    assert get_pipeline_stage_assignment(model) == [None] * 3
    set_pipeline_stage_assignment(model, [0, 1, 2])
    assert matmul_stages(model, (2, 8)) == [0, 1, 1, 2, 2]
    inside = get_pipeline_stage_assignment(graph)
    fill(inside, 2)
    set_pipeline_stage_assignment(model, [0, [1, 2], inside])
    assert matmul_stages(model, (2, 8)) == [0, 1, 2, 2, 3]
    assert stages(model)[:2] == [0, [1, 2]]


def test_a_nested_models_own_stages_are_its_defaults() -> None:
    inner = sequential(layers.Dense(8), layers.Dense(8))
    set_pipeline_stage_assignment(inner, [0, 1])
    model = sequential(inner)
    assert get_pipeline_stage_assignment(model) == [[0, 1]]
    assert matmul_stages(model, (2, 8)) == [0, 1]
    set_pipeline_stage_assignment(model, [0])
    assert matmul_stages(model, (2, 8)) == [0, 0]
    assert matmul_stages(inner, (2, 8)) == [0, 1]


def test_a_model_that_is_called_several_times() -> None:
    inner = functional(layers.Dense(8), layers.Dense(8))
    model = functional(inner, inner, layers.Dense(8))
    assignment = get_pipeline_stage_assignment(model)
    assert [entry.node_index for entry in assignment[:2]] == [0, 1]
    fill(assignment)
    set_pipeline_stage_assignment(model, assignment)
    assert matmul_stages(model, (2, 8)) == [0, 1, 2, 3, 4]
    assert stages(model) == [[0, 1], [2, 3], 4]


def test_a_whole_model_called_in_a_scope() -> None:
    inner = functional(layers.Dense(8), layers.Dense(8))
    first = keras.Input((8,))
    with PipelineStage(0):
        x = inner(first)
    with PipelineStage(1):
        x = inner(x)
    model = keras.Model(first, x)
    assert stages(model) == [[0, 0], [1, 1]]
    assert matmul_stages(model, (2, 8)) == [0, 0, 1, 1]
    assert stages(inner) == [None, None]


def test_scopes_inside_a_nested_model() -> None:
    first = x = keras.Input((8,))
    for stage in (1, 2):
        with PipelineStage(stage):
            x = layers.Dense(8)(x)
    inner = keras.Model(first, x)
    first = keras.Input((8,))
    with PipelineStage(0):
        x = layers.Dense(8)(first)
    x = inner(x)
    with PipelineStage(3):
        x = layers.Dense(8)(x)
    model = keras.Model(first, x)
    assert stages(model) == [0, [1, 2], 3]
    assert matmul_stages(model, (2, 8)) == [0, 1, 2, 3]


def test_dependencies_through_a_nested_model() -> None:
    first, second = keras.Input((8,)), keras.Input((8,))
    inner = keras.Model((first, second), (layers.Dense(8)(first), layers.Dense(8)(second)))
    set_pipeline_stage_assignment(inner, _with(inner, 0, 1))
    first = keras.Input((8,))
    x, y = inner((first, first))
    model = keras.Model(first, (layers.Dense(4)(x), layers.Dense(4)(y)))
    assignment = get_pipeline_stage_assignment(model)
    early, late = (e for e in assignment if not e.is_nested_model)
    early.pipeline_stage, late.pipeline_stage = 1, 1
    set_pipeline_stage_assignment(model, assignment)
    early.pipeline_stage = late.pipeline_stage = 0
    with pytest.raises(PipelineError, match="in pipeline stage 0 has a dependency on stage 1"):
        set_pipeline_stage_assignment(model, assignment)


def _with(model: Any, *numbers: int) -> list[Any]:
    assignment = get_pipeline_stage_assignment(model)
    for entry, stage in zip(assignment, numbers, strict=True):
        entry.pipeline_stage = stage
    return assignment


def test_a_subclassed_model_in_a_functional_one() -> None:
    with PipelineStage(1):
        head = layers.Dense(8)
    model = functional(Subclassed(layers.Dense(8), layers.Dense(8)), head)
    assert stages(model) == [None, 1]
    assert matmul_stages(model, (2, 8)) == [0, 1, 1]


def test_graphs_in_a_subclassed_model() -> None:
    parts = sequential(layers.Dense(8), layers.Dense(8)), functional(layers.Dense(8))
    model = Subclassed(*parts)
    model(keras.ops.ones((2, 8)))
    assert matmul_stages(model, (2, 8)) == [0, 0, 1]
    assert stages(model) == [0, 0, 1]


def test_an_assignment_for_a_nested_model_is_a_nested_one() -> None:
    inner = functional(layers.Dense(8))
    model = functional(inner)
    with pytest.raises(PipelineError, match="of FunctionalNestedModelPipelineStageAssignment"):
        set_pipeline_stage_assignment(model, [FunctionalLayerPipelineStageAssignment(inner, 0, 0)])
