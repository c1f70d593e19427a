"""Models whose weights come with the first batch: the original's `deferred_sequential_test.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ipujax.keras.twins import alike, keras, on_ipus, twins, values


def deferred() -> Any:
    layers = keras.layers
    return keras.Sequential([layers.Dense(2), layers.Dropout(0.3), layers.Dense(2)])


@pytest.mark.exhaustive
def test_build_behavior() -> None:
    """Other sizes of batches run after the one that made the weights."""
    with on_ipus():
        model = deferred()
        model.compile("rmsprop", "mse", metrics=[keras.metrics.CategoricalAccuracy()])
        model.fit(np.zeros((32, 6)), np.zeros((32, 2)), verbose=0)
        assert len(model.weights) == 4
        for count in (2, 3, 4):
            assert model.predict(np.zeros((count, 6)), verbose=0).shape == (count, 2)


def test_add_and_pop() -> None:
    with on_ipus():
        model = deferred()
        model.compile("rmsprop", "mse")
        model.fit(np.zeros((4, 6)), np.zeros((4, 2)), verbose=0)
        model.pop()
        assert model.predict(np.zeros((4, 6)), verbose=0).shape == (4, 2)
        model.add(keras.layers.Dense(5))
        assert model.predict(np.zeros((4, 6)), verbose=0).shape == (4, 5)
        paths = {tensor.path for tensor in model.report("predict").memory.biggest}
        assert any("bias" in path for path in paths), paths


def test_reports_of_modes() -> None:
    with on_ipus():
        model = deferred()
        model.compile("sgd", "mse")
        with pytest.raises(ValueError, match="no program yet"):
            model.report()
        model.predict(np.zeros((4, 6)), verbose=0)
        predicts = model.report()
        assert predicts is model.report("predict")
        model.evaluate(np.zeros((4, 6)), np.zeros((4, 2)), verbose=0)
        assert model.report() is model.report("evaluate")
        model.fit(np.zeros((4, 6)), np.zeros((4, 2)), verbose=0)
        assert model.report() is model.report("train")
        assert model.report("predict") is predicts
        with pytest.raises(ValueError, match="the mode to report is 'test'"):
            model.report("test")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_saving(tmp_path: Path, name: str) -> None:
    x, y = np.random.default_rng(0).random((8, 6), np.float32), np.zeros((8, 2), np.float32)
    with on_ipus():
        model = deferred()
        model.compile("rmsprop", "mse")
        model.fit(x, y, verbose=0)
        model.save(tmp_path / name)
        loaded = keras.models.load_model(tmp_path / name, compile=False)
        assert [layer.name for layer in loaded.layers] == [layer.name for layer in model.layers]
        alike(values(loaded.trainable_weights), values(model.trainable_weights), rtol=0, atol=0)
        alike(loaded.predict(x, verbose=0), model.predict(x, verbose=0), rtol=0, atol=0)


class AddSum(keras.layers.Layer):
    """Adds the sum of its inputs to the loss."""

    def call(self, inputs: Any) -> Any:
        """Gives the inputs as they are."""
        self.add_loss(keras.ops.sum(inputs))
        return inputs


@pytest.mark.exhaustive
def test_loss_layer() -> None:
    ones = np.ones((2, 2), np.float32)
    with on_ipus():
        alone = keras.Sequential([AddSum(), keras.layers.Dense(1)])
        alone.compile("rmsprop")
        assert alone.train_on_batch(ones) == pytest.approx(4.0)
        # A batch of another size is another program.
        assert alone.train_on_batch(ones[:1]) == pytest.approx(2.0)

    def program() -> Any:
        model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones"), AddSum()])
        model.compile("rmsprop", "mse")
        losses = [model.train_on_batch(ones, np.ones((2, 1), np.float32)) for _ in range(2)]
        return losses, values(model.weights)

    (losses, weights), keras_own = twins(program)
    assert losses[0] == pytest.approx(1.0 + 4.0)
    alike((losses, weights), keras_own)
