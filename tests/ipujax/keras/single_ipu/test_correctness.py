"""Numbers worked out by hand, of models of one bias: the original's `correctness_test.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ipujax.keras.twins import KINDS, Bias, Kind, keras, model_of, on_ipus

FALLING = [1.0, 0.9, 0.8, 0.7, 0.6]


class Summed(keras.Model):
    """Adds its inputs, then a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.add = keras.layers.Add()
        self.bias = Bias()

    def call(self, inputs: Any) -> Any:
        return self.bias(self.add(inputs))


def biased(kind: Kind) -> Any:
    model = model_of(kind, [Bias()], (1,))
    model.compile(keras.optimizers.SGD(0.1), "mae")
    return model


def column(*numbers: float) -> Any:
    return np.reshape(np.asarray(numbers, np.float32), (-1, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_simple_bias_fit(kind: Kind) -> None:
    with on_ipus():
        history = biased(kind).fit(
            column(0, 1, 2), column(0.5, 2, 3.5), batch_size=3, epochs=5, verbose=0
        )
    np.testing.assert_allclose(history.history["loss"], FALLING, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_simple_bias_evaluate(kind: Kind) -> None:
    with on_ipus():
        loss = biased(kind).evaluate(column(0, 1, 2), column(1, 3, 5), batch_size=1, verbose=0)
    assert loss == pytest.approx(2.0)


@pytest.mark.parametrize("kind", KINDS)
def test_simple_bias_predict(kind: Kind) -> None:
    with on_ipus():
        predicted = biased(kind).predict(column(0, 1, 2), batch_size=1, verbose=0)
    np.testing.assert_array_equal(predicted, column(0, 1, 2))


def summed(subclassed: bool) -> Any:
    if subclassed:
        model: Any = Summed()
    else:
        inputs = [keras.Input((1,)) for _ in range(3)]
        model = keras.Model(inputs, Bias()(keras.layers.Add()(inputs)))
    model.compile(keras.optimizers.SGD(0.1), "mae")
    return model


THREE = [column(1, 2, 3), column(4, 5, 6), column(7, 8, 9)]


@pytest.mark.parametrize("subclassed", [True, False])
def test_multiple_input_fit(subclassed: bool) -> None:
    with on_ipus():
        history = summed(subclassed).fit(
            THREE, column(12.5, 16, 19.5), batch_size=3, epochs=5, verbose=0
        )
    np.testing.assert_allclose(history.history["loss"], FALLING, rtol=1e-5)


@pytest.mark.parametrize("subclassed", [True, False])
def test_multiple_input_evaluate(subclassed: bool) -> None:
    with on_ipus():
        loss = summed(subclassed).evaluate(THREE, column(13, 17, 21), batch_size=3, verbose=0)
    assert loss == pytest.approx(2.0)


@pytest.mark.parametrize("subclassed", [True, False])
def test_multiple_input_predict(subclassed: bool) -> None:
    with on_ipus():
        predicted = summed(subclassed).predict(THREE, batch_size=1, verbose=0)
    np.testing.assert_array_equal(predicted, column(12, 15, 18))
