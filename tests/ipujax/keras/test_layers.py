"""What holds of every layer: configurations, files, policies, models, and programs on IPUs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import ipujax as ipu
from tests.harness import ROOT

keras = pytest.importorskip("keras")
from ipujax.keras import layers  # noqa: E402

X = np.random.default_rng(0).uniform(-1, 1, (2, 3, 4)).astype(np.float32)

EVERY: dict[str, tuple[Any, dict[str, Any]]] = {
    "Dropout": (layers.Dropout, {"rate": 0.25, "noise_shape": (None, 1, 4), "seed": [1, 2]}),
    "Embedding": (layers.Embedding, {"input_dim": 5, "output_dim": 2}),
    "GroupNormalization": (
        layers.GroupNormalization,
        {"groups": 4, "epsilon": 0.1, "strided_channel_grouping": False, "dtype": "float16"},
    ),
    "InstanceNormalization": (layers.InstanceNormalization, {"scale": False, "channels_axis": 1}),
    "LayerNormalization": (layers.LayerNormalization, {"axis": (1, 2), "trainable": False}),
    "PopnnGRU": (layers.GRU, {"units": 2, "seed": 3, "dropout": 0.5, "reset_after": False}),
    "PopnnLSTM": (
        layers.LSTM,
        {"units": 2, "return_sequences": True, "partials_dtype": np.float16, "activation": None},
    ),
    "RecomputationCheckpoint": (layers.RecomputationCheckpoint, {"name": "here"}),
}
of_every = pytest.mark.parametrize("name", EVERY)


def made(name: str) -> Any:
    kind, arguments = EVERY[name]
    return kind(**arguments)


def model_of(layer: Any) -> Any:
    inputs = keras.Input((3,), dtype="int32") if layer.name == "embedding" else keras.Input((3, 4))
    return keras.Model(inputs, layer(inputs))


def test_every_layer_is_here():
    names = {name for name in vars(layers) if isinstance(getattr(layers, name), type)}
    assert names == {*EVERY, "LSTM", "GRU"}


@of_every
def test_configurations_go_round(name):
    layer = made(name)
    config = layer.get_config()
    again = type(layer).from_config(config)
    assert again.get_config() == config
    held = keras.saving.serialize_keras_object(layer)
    assert held["registered_name"] == f"ipujax>{name}"
    assert keras.saving.deserialize_keras_object(held).get_config() == config


@pytest.mark.exhaustive
@of_every
def test_models_are_saved_and_loaded(name, tmp_path: Path):
    keras.backend.clear_session()
    model = model_of(made(name))
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.saving.load_model(path)
    x = np.array([[1, 2, 4]]) if name == "Embedding" else X
    np.testing.assert_array_equal(loaded(x), model(x))
    assert type(loaded.layers[-1]) is EVERY[name][0]


@pytest.mark.exhaustive
@of_every
def test_shapes_are_known_before_a_call(name):
    keras.backend.clear_session()
    layer = made(name)
    shape = (None, 3) if name == "Embedding" else (None, 3, 4)
    assert layer.compute_output_shape(shape) == model_of(layer).output_shape


@pytest.mark.parametrize("name", ["Dropout", "Embedding", "PopnnGRU", "PopnnLSTM"])
def test_the_policy_is_followed(name):
    kind, arguments = EVERY[name]
    layer = kind(**arguments, dtype="mixed_float16")
    x = np.array([[1, 2, 4]]) if name == "Embedding" else X
    assert layer(x, training=True).dtype == "float16"
    assert {v.dtype for v in layer.trainable_variables} <= {"float32"}


@pytest.mark.exhaustive
def test_a_model_learns_without_a_strategy():
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            layers.Embedding(5, 4),
            layers.LSTM(8, dropout=0.1, dropout_seed=1),
            layers.LayerNormalization(),
            layers.Dropout(0.1, seed=1),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.05), "mse")
    ids = np.random.default_rng(1).integers(0, 5, (16, 3))
    history = model.fit(ids, ids[:, -1:].astype(np.float32), batch_size=8, epochs=15, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0] / 4


def test_a_program_on_ipus_gives_what_jax_gives():
    model = keras.Sequential(
        [
            keras.Input((3, 4)),
            layers.GroupNormalization(),
            layers.RecomputationCheckpoint(),
            layers.GRU(4, dropout=0.1, dropout_seed=1),
            layers.Dropout(0.1, seed=1),
            layers.InstanceNormalization(),
        ]
    )
    trainable = [v.value for v in model.trainable_variables]
    others = [v.value for v in model.non_trainable_variables]

    def step(trainable: Any, others: Any) -> Any:
        outputs, others = model.stateless_call(trainable, others, X, training=True)
        return (outputs**2).sum(), others

    run = jax.value_and_grad(step, has_aux=True)
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6),
        ipu.compile(run)(trainable, others),
        jax.jit(run)(trainable, others),
    )


def test_without_keras_the_extra_is_named():
    source = "import sys; sys.modules['keras'] = None; import ipujax; ipujax.keras.layers"
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=ROOT)
    assert "pip install 'ipujax[keras]'" in ran.stderr
