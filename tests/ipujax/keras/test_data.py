"""Data of all kinds gives in the scope of a strategy what it gives without."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.experimental import sparse

pytest.importorskip("keras")

import keras

from ipujax.ipu_strategy import IPUStrategy
from tests.ipujax.keras.modelling import dense, numbers_agree, points

X, Y = points()


def test_a_prediction_of_one_number_has_no_axis():
    class Summed(keras.Sequential):
        def predict_step(self, state, data):
            outputs, state = super().predict_step(state, data)
            return keras.ops.sum(outputs), state

    def use():
        keras.utils.set_random_seed(1)
        return Summed([keras.Input((4,)), keras.layers.Dense(2)]).predict_on_batch(X)

    numbers_agree(use)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sizes", [(4, 4, 3, 4, 4, 2), (1, 2, 3)])
def test_batches_of_changing_sizes_are_executed_together(sizes):
    def use():
        ends, model = [], dense(steps_per_execution=3)
        watch = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: ends.append((batch, float(logs["loss"])))
        )
        data = ((X[:size], Y[:size]) for size in sizes)
        with pytest.warns(UserWarning, match="ran out of data"):
            model.fit(data, verbose=0, callbacks=[watch], shuffle=False)
        return ends, model.get_weights()

    numbers_agree(use)


def test_what_the_data_raises_in_the_first_execution_is_raised():
    def data():
        yield X[:4], Y[:4]
        raise RuntimeError("the disk is gone")

    model = dense(steps_per_execution=3)
    before = model.get_weights()
    with IPUStrategy().scope(), pytest.raises(RuntimeError, match="the disk is gone"):
        model.fit(data(), verbose=0, shuffle=False)
    for one, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_generator_serves_several_epochs_and_fits():
    def use():
        taken = []

        def batches():
            for start in range(100):
                taken.append(start)
                yield X[start % 3 :][:4], Y[start % 3 :][:4]

        model, data = dense(steps_per_execution=3), batches()
        first = model.fit(data, steps_per_epoch=4, epochs=2, verbose=0, shuffle=False)
        second = model.fit(data, steps_per_epoch=2, verbose=0, shuffle=False)
        return first.history, second.history, model.get_weights(), len(taken)

    numbers_agree(use)


@pytest.mark.exhaustive
def test_sparse_arrays():
    data = sparse.BCOO.fromdense(jax.numpy.asarray(X * (X > 0)), nse=X.size)
    numbers_agree(lambda: dense().predict(data, batch_size=5, verbose=0))


def test_missing_inputs_stay_none():
    class Sum(keras.Model):
        def __init__(self):
            super().__init__()
            self.last = keras.layers.Dense(2)

        def call(self, inputs):
            one, other = inputs
            return self.last(one) if other is None else self.last(one) + other

    def use():
        keras.utils.set_random_seed(1)
        model = Sum()
        model.compile("sgd", "mse")
        data = (((X[:4], None), Y[:4]) for _ in range(2))
        return model.fit(data, steps_per_epoch=2, verbose=0, shuffle=False).history

    numbers_agree(use)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["int64", "float64", "uint8", "bool", "float16", "bfloat16"])
def test_data_of_any_dtype(dtype):
    data = jax.numpy.asarray(X * 3).astype(dtype) if dtype == "bfloat16" else (X * 3).astype(dtype)
    numbers_agree(lambda: dense().fit(data, Y, batch_size=5, verbose=0).history)


def test_weights_of_samples_and_classes():
    weights, classes = np.linspace(0, 1, len(X)), (Y[:, :1] > 0).astype(int)

    def use():
        model = dense(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        sampled = model.fit(X, classes, sample_weight=weights, batch_size=5, verbose=0)
        weighted = model.fit(X, classes, class_weight={0: 0.3, 1: 2.0}, batch_size=5, verbose=0)
        return sampled.history, weighted.history, model.get_weights()

    numbers_agree(use)
