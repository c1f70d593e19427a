"""Sequential models that grow, shrink and nest: the original's `sequential_test.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ipujax.keras.twins import alike, keras, on_ipus, twins, values

RANDOM = np.random.default_rng(5)
X, Y = RANDOM.random((10, 3), np.float32), RANDOM.random((10, 2), np.float32)
RUN: dict[str, Any] = {"batch_size": 5, "shuffle": False, "verbose": 0}


def small(hidden: int = 4, classes: int = 2, inputs: int | None = None) -> Any:
    """Two dense layers; their weights come with the first batch unless `inputs` says their size."""
    first = [] if inputs is None else [keras.Input((inputs,))]
    dense = keras.layers.Dense
    return keras.Sequential([*first, dense(hidden, activation="relu"), dense(classes)])


def compiled(model: Any) -> Any:
    model.compile("rmsprop", "mse", metrics=[keras.metrics.CategoricalAccuracy()])
    return model


@pytest.mark.exhaustive
def test_sequential_deferred_build_with_np_arrays() -> None:
    def program() -> Any:
        model = compiled(small())
        assert not model.built
        history = model.fit(X, Y, **RUN)
        assert model.built
        return history.history, values(model.weights)

    ours, keras_own = twins(program)
    assert len(ours[1]) == 4
    alike(ours, keras_own)


def test_sequential_deferred_build_with_dataset_iterators() -> None:
    def endless() -> Any:
        while True:
            yield X, Y

    with on_ipus():
        model = compiled(small())
        history = model.fit(endless(), epochs=2, steps_per_epoch=3, shuffle=False, verbose=0)
    assert len(model.weights) == 4
    assert len(history.history["loss"]) == 2


@pytest.mark.exhaustive
def test_sequential_pop() -> None:
    def program() -> Any:
        model = compiled(small(4, 2, inputs=3))
        first = model.fit(X, Y, **RUN).history
        model.pop()
        assert model.output_shape == (None, 4)
        second = compiled(model).fit(X, np.zeros((10, 4), np.float32), **RUN).history
        return first, second, values(model.weights)

    ours, keras_own = twins(program)
    assert len(ours[2]) == 2
    alike(ours, keras_own)


@pytest.mark.exhaustive
def test_layer_add_after_compile_deferred() -> None:
    def program() -> Any:
        model = keras.Sequential([keras.layers.Dense(3)])
        model.compile("adam", "mse")
        first = model.fit(X, X, **RUN).history
        model.add(keras.layers.Dense(3))
        model.compile("adam", "mse")
        return first, model.fit(X, X, **RUN).history, values(model.weights)

    ours, keras_own = twins(program)
    assert len(ours[2]) == 4
    alike(ours, keras_own)


def test_sequential_deferred_build_serialization() -> None:
    with on_ipus():
        model = compiled(small())
        model.train_on_batch(X, Y)
        again = compiled(keras.Sequential.from_config(model.get_config()))
        again.train_on_batch(X, Y)
        again.set_weights(model.get_weights())
        alike(again.predict(X, verbose=0), model.predict(X, verbose=0), rtol=0, atol=0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["called", "built"])
def test_sequential_deferred_manual_build(how: str) -> None:
    def program() -> Any:
        model = small()
        if how == "built":
            model.build((None, 3))
        else:
            model(np.zeros((1, 3), np.float32))
        assert model.built
        return compiled(model).train_on_batch(X, Y)

    alike(*twins(program))


def test_sequential_nesting() -> None:
    def program() -> Any:
        model = small(4, 3)
        model.add(small(4, 2))
        return compiled(model).fit(X, Y, **RUN).history, values(model.weights)

    ours, keras_own = twins(program)
    assert len(ours[1]) == 8
    alike(ours, keras_own)


@pytest.mark.exhaustive
def test_nested_sequential_trainability() -> None:
    """What an inner model does not train stays as it is, also after a change of mind."""

    def program() -> Any:
        inner = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
        model = keras.Sequential([inner, keras.layers.Dense(2)])
        inner.trainable = False
        compiled(model).fit(X, Y, **RUN)
        frozen = values(inner.weights)
        inner.trainable = True
        compiled(model).fit(X, Y, **RUN)
        return frozen, values(model.weights)

    ours, keras_own = twins(program)
    np.testing.assert_array_equal(ours[0][1], np.zeros(4))
    assert np.any(ours[1][1] != 0)
    alike(ours, keras_own)


def test_sequential_update_disabling() -> None:
    """Moving statistics of a frozen model stay; training with them moves what it predicts."""
    with on_ipus():
        model = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization()])
        model.trainable = False
        model.compile("sgd", "mse")
        before = model.predict(X, verbose=0)
        model.train_on_batch(X, X)
        alike(model.predict(X, verbose=0), before, rtol=0, atol=0)
        model.trainable = True
        model.compile("sgd", "mse")
        model.train_on_batch(X, X)
        assert np.abs(model.predict(X, verbose=0) - before).sum() > 1e-5


def test_build_empty_network() -> None:
    """With no layers there is nothing to build, Keras says; with one there is."""
    with on_ipus():
        model = compiled(keras.Sequential())
        with pytest.raises(ValueError, match="has no layers"):
            model.fit(X, Y, **RUN)
        model.add(keras.layers.Dense(2))
        compiled(model).fit(X, Y, **RUN)
    assert len(model.weights) == 2


def test_multi_output_layer() -> None:
    """The original refuses it; Keras 3 has it, as the last layer."""

    class Twice(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs, 2 * inputs

    with on_ipus():
        first, second = keras.Sequential([Twice()]).predict(X, verbose=0)
    np.testing.assert_array_equal(first, X)
    np.testing.assert_array_equal(second, 2 * X)
