"""Stages of saved models; after the original's `extensions_save_load_test.py`."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("keras")

import keras
from keras import layers

from ipujax.keras import (
    PipelineStage,
    get_pipeline_stage_assignment,
    set_pipeline_stage_assignment,
    stage_config,
)
from tests.harness import run_python
from tests.ipujax.keras.building import matmul_stages, stages, two_towers

# Of Keras's own variables, under NumPy 2.
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)


@pytest.fixture(autouse=True)
def extended() -> None:
    stage_config.extend_model_configs()


def saved(model: Any, folder: Path, ending: str = "keras") -> Any:
    file = folder / f"model.{ending}"
    model.save(file)
    return keras.models.load_model(file)


def numbered(model: Any, *numbers: int) -> Any:
    assignment = get_pipeline_stage_assignment(model)
    for entry, stage in zip(assignment, numbers, strict=True):
        entry.pipeline_stage = stage
    set_pipeline_stage_assignment(model, assignment)
    return model


def by_call(model: Any) -> dict[tuple[str, int], int]:
    entries = get_pipeline_stage_assignment(model)
    return {(e.layer.name, e.node_index): e.pipeline_stage for e in entries}


def test_functional(tmp_path: Path) -> None:
    model = numbered(two_towers(), *range(6))
    loaded = saved(model, tmp_path)
    assert by_call(loaded) == by_call(model)
    assert sorted(by_call(loaded).values()) == [0, 1, 2, 3, 4, 5]
    assert sorted(matmul_stages(loaded, (2, 32), (2, 32))) == [2, 3, 4, 5]


def test_a_graph_that_shares_layers_with_another(tmp_path: Path) -> None:
    shared, first = layers.Dense(8), keras.Input((8,))
    shared(first)
    with PipelineStage(0):
        x = shared(first)
    with PipelineStage(1):
        x = shared(x)
    model = keras.Model(first, x)
    assert [call[1] for call in by_call(model)] == [1, 2]
    assert list(by_call(saved(model, tmp_path)).items()) == [
        ((shared.name, 0), 0),
        ((shared.name, 1), 1),
    ]


@pytest.mark.parametrize("built", [True, False])
def test_sequential(tmp_path: Path, built: bool) -> None:
    first = [keras.Input((8,))] if built else []
    model = keras.Sequential([*first, layers.Dense(8), layers.Dense(8), layers.Dense(4)])
    set_pipeline_stage_assignment(model, [0, 1, 1])
    again = type(model).from_config(model.get_config())
    assert get_pipeline_stage_assignment(again) == [0, 1, 1]
    if built:
        assert get_pipeline_stage_assignment(saved(model, tmp_path)) == [0, 1, 1]


def test_operations(tmp_path: Path) -> None:
    first = keras.Input((8,))
    with PipelineStage(0):
        x = layers.Dense(8)(first)
    with PipelineStage(1):
        x = keras.ops.tanh(x * 2.0)
    loaded = saved(keras.Model(first, x), tmp_path)
    assert stages(loaded) == [0, 1, 1]


def test_hdf5(tmp_path: Path) -> None:
    model = numbered(two_towers(), *range(6))
    assert by_call(saved(model, tmp_path, "h5")) == by_call(model)


def test_nested(tmp_path: Path) -> None:
    inner = keras.Sequential([keras.Input((8,)), layers.Dense(8), layers.Dense(8)])
    first = keras.Input((8,))
    model = keras.Model(first, layers.Dense(2)(inner(inner(first))))
    assignment = get_pipeline_stage_assignment(model)
    assignment[0].pipeline_stage_assignments = [0, 1]
    assignment[1].pipeline_stage_assignments = [1, 2]
    assignment[2].pipeline_stage = 3
    set_pipeline_stage_assignment(model, assignment)
    loaded = saved(model, tmp_path)
    assert stages(loaded) == [[0, 1], [1, 2], 3]
    assert matmul_stages(loaded, (2, 8)) == [0, 1, 1, 2, 3]


def test_pickled() -> None:
    model = numbered(two_towers(), 0, 0, 1, 1, 2, 2)
    assert by_call(pickle.loads(pickle.dumps(model))) == by_call(model)


def test_models_without_stages_are_saved_as_ever(tmp_path: Path) -> None:
    model = two_towers()
    assert "ipu" not in str(model.get_config())
    assert stages(saved(model, tmp_path)) == [None] * 6


@pytest.mark.exhaustive
def test_keras_alone_loads_it(tmp_path: Path) -> None:
    for name, model in {
        "functional": numbered(two_towers(), *range(6)),
        "sequential": keras.Sequential([keras.Input((8,)), layers.Dense(8)]),
    }.items():
        if name == "sequential":
            set_pipeline_stage_assignment(model, [0])
        model.save(tmp_path / f"{name}.keras")
        program = f"""
            import keras, sys
            model = keras.models.load_model({str(tmp_path / f"{name}.keras")!r})
            print(len(model.variables), "ipujax" in sys.modules)
        """
        assert run_python(program, 1, tmp_path).split() == [str(len(model.variables)), "False"]
