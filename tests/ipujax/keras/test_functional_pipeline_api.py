"""Pipeline stages of functional models; after the original's `functional_pipeline_api_test.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("keras")

import keras
from keras import layers

from ipujax.errors import PipelineError, PipelineTypeError
from ipujax.keras import (
    FunctionalLayerPipelineStageAssignment,
    PipelineStage,
    get_pipeline_stage_assignment,
    reset_pipeline_stage_assignment,
    set_pipeline_stage_assignment,
)
from tests.ipujax.keras.building import matmul_stages, stages, traced, two_towers


def number(model: Any, *numbers: int | None) -> None:
    assignment = get_pipeline_stage_assignment(model)
    for entry, stage in zip(assignment, numbers, strict=True):
        entry.pipeline_stage = stage
    set_pipeline_stage_assignment(model, assignment)


def with_scopes() -> Any:
    first, second = keras.Input((32,)), keras.Input((32,))
    with PipelineStage(0):
        x = layers.Flatten()(first)
    with PipelineStage(1):
        y = layers.Flatten()(second)
    with PipelineStage(2):
        x = layers.Dense(4)(x)
    with PipelineStage(3):
        y = layers.Dense(4)(y)
    with PipelineStage(4):
        shared = layers.Dense(8)
    x = shared(x)
    with PipelineStage(5):
        y = shared(y)
    return keras.Model((first, second), (x, y))


def test_default_assignment_has_an_entry_for_each_call() -> None:
    model = two_towers()
    assignment = get_pipeline_stage_assignment(model)
    assert all(isinstance(entry, FunctionalLayerPipelineStageAssignment) for entry in assignment)
    assert stages(model) == [None] * 6
    shared = model.layers[-1]
    assert sorted(x.node_index for x in assignment if x.layer is shared) == [0, 1]


def test_set_and_reset() -> None:
    model = two_towers()
    number(model, *range(6))
    assert stages(model) == [0, 1, 2, 3, 4, 5]
    assert set(matmul_stages(model, (2, 32), (2, 32))) == {2, 3, 4, 5}
    reset_pipeline_stage_assignment(model)
    assert stages(model) == [None] * 6
    assert matmul_stages(model, (2, 32), (2, 32)) == [None] * 4


def test_assignments_got_are_the_callers_own() -> None:
    model = two_towers()
    number(model, 0, 0, 0, 0, 1, 1)
    get_pipeline_stage_assignment(model)[0].pipeline_stage = 7
    assert stages(model) == [0, 0, 0, 0, 1, 1]


def test_inbound_layers() -> None:
    model = two_towers()
    names = [[x.name for x in e.inbound_layers] for e in get_pipeline_stage_assignment(model)]
    assert [len(each) for each in names] == [1] * 6


def test_invalid_number_of_assignments() -> None:
    model = two_towers()
    assignment = get_pipeline_stage_assignment(model)[:-1]
    with pytest.raises(PipelineError, match=r"length .* \(5\) does not match .* \(6\)"):
        set_pipeline_stage_assignment(model, assignment)


def test_invalid_assignment_class() -> None:
    model = two_towers()
    with pytest.raises(PipelineError, match="instance of FunctionalLayerPipelineStageAssignment"):
        set_pipeline_stage_assignment(model, [0] * 6)
    with pytest.raises(PipelineError, match="needs to be a list, not dict"):
        set_pipeline_stage_assignment(model, {})


def test_missing_assignment() -> None:
    with pytest.raises(PipelineError, match=r"node index \d\) of model .* has not been assigned"):
        number(two_towers(), 0, 1, 2, 3, 4, None)


def test_assignments_in_another_order() -> None:
    model = two_towers()
    assignment = get_pipeline_stage_assignment(model)
    assignment[0], assignment[1] = assignment[1], assignment[0]
    with pytest.raises(PipelineError, match="order of pipeline_stage_assignment is not that"):
        set_pipeline_stage_assignment(model, assignment)


def test_layers_of_another_model() -> None:
    assignment = get_pipeline_stage_assignment(two_towers())
    with pytest.raises(PipelineError, match="order of pipeline_stage_assignment is not that"):
        set_pipeline_stage_assignment(two_towers(), assignment)


def test_empty_stages() -> None:
    with pytest.raises(PipelineError, match=r"highest .* is 10, but stages \[1, 3, 5, 7, 9\]"):
        number(two_towers(), *range(0, 12, 2))


def test_stages_that_do_not_start_at_0() -> None:
    with pytest.raises(PipelineError, match=r"stages \[0\] have none"):
        number(two_towers(), 1, 1, 1, 1, 2, 2)


def test_dependency_on_a_later_stage() -> None:
    model = two_towers()
    with pytest.raises(PipelineError, match="in pipeline stage 1 has a dependency on stage 2"):
        number(model, 2, 0, 1, 1, 2, 2)
    assert stages(model) == [None] * 6


@pytest.mark.parametrize("stage", [1.0, "1", True])
def test_stages_are_integers(stage: Any) -> None:
    with pytest.raises(PipelineTypeError, match="the pipeline stage of layer"):
        number(two_towers(), 0, 0, 0, 0, 1, stage)


def test_negative_stages() -> None:
    with pytest.raises(PipelineError, match="at least 0"):
        number(two_towers(), 0, 0, 0, 0, 0, -1)


def test_scopes() -> None:
    model = with_scopes()
    found = {(x.layer.name, x.node_index): x for x in get_pipeline_stage_assignment(model)}
    by_layer = [sorted(e.pipeline_stage for (n, _), e in found.items() if n == layer.name)
                for layer in model.layers if (layer.name, 0) in found]  # fmt: skip
    assert sorted(by_layer) == [[0], [1], [2], [3], [4, 5]]
    assert [found[model.layers[-1].name, i].pipeline_stage for i in (0, 1)] == [4, 5]
    assert sorted(matmul_stages(model, (2, 32), (2, 32))) == [2, 3, 4, 5]


def test_an_assignment_goes_before_scopes() -> None:
    model = with_scopes()
    number(model, 0, 0, 0, 0, 1, 1)
    assert sorted(matmul_stages(model, (2, 32), (2, 32))) == [0, 0, 1, 1]
    reset_pipeline_stage_assignment(model)
    assert sorted(matmul_stages(model, (2, 32), (2, 32))) == [2, 3, 4, 5]


def test_partial_scopes() -> None:
    first = keras.Input((32,))
    with PipelineStage(0):
        x = layers.Dense(4)(first)
    model = keras.Model(first, layers.Dense(4, name="left_out")(x))
    with pytest.raises(PipelineError, match=r"layer 'left_out' .* has not been assigned to one"):
        traced(model, (2, 32))


def test_everything_that_a_call_computes_has_its_mark() -> None:
    first = keras.Input((8,))
    with PipelineStage(0):
        x = layers.Dense(4, activation="relu", activity_regularizer="l2")(first) * 2.0
    with PipelineStage(1):
        y = keras.ops.tanh(x)
    found = traced(keras.Model(first, y), (2, 8))
    assert found[-1] == ("tanh", 1)
    assert {stage for _, stage in found[:-1]} == {0}
    assert {"dot_general", "custom_jvp_call", "mul"} <= {name for name, _ in found}


def test_the_numbers_are_those_without_stages() -> None:
    model = with_scopes()
    inputs = [np.random.default_rng(0).normal(size=(2, 32)).astype(np.float32) for _ in "ab"]
    wanted = two_towers()
    for to, variable in zip(wanted.variables, model.variables, strict=True):
        to.assign(variable.value)
    for got, want in zip(model(inputs), wanted(inputs), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_part_of_a_graph_keeps_its_stages() -> None:
    first, shared = keras.Input((8,)), layers.Dense(8)
    before = layers.Dense(8)(first)
    with PipelineStage(0):
        x = shared(before)
    with PipelineStage(1):
        x = shared(layers.Dense(8)(x))
    part = keras.Model(before, x)
    assert stages(part) == [0, 1, 1]
    assert matmul_stages(part, (2, 8)) == [0, 1, 1]
