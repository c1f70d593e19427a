"""Weights of samples, masks, frozen layers, metrics and counted calls: `training_test.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ipujax.keras.twins import KINDS, Kind, alike, keras, model_of, on_ipus, twins, values

# Long, and the modules beside this one hold a sample of the same.
pytestmark = pytest.mark.exhaustive

RANDOM = np.random.default_rng(13)
X = RANDOM.random((10, 3), np.float32)
Y = RANDOM.random((10, 2), np.float32)
CLASSES = keras.utils.to_categorical(np.arange(10) % 3, 3)
ONES = np.ones((10, 1), np.float32)
RUN: dict[str, Any] = {"batch_size": 5, "verbose": 0}


def test_class_weights() -> None:
    def program() -> Any:
        model = model_of("sequential", [keras.layers.Dense(3, activation="softmax")], (3,))
        model.compile(
            "rmsprop", "categorical_crossentropy", metrics=["acc"], weighted_metrics=["mae"]
        )
        weights = {0: 1.0, 1: 1.0, 2: 0.25}
        history = model.fit(
            X, CLASSES, class_weight=weights, validation_data=(X, CLASSES), **RUN
        ).history
        batch = model.train_on_batch(X[:5], CLASSES[:5], class_weight=weights)
        return history, batch, values(model.weights)

    alike(*twins(program))


def test_temporal_sample_weights() -> None:
    """A weight for each step in time."""
    weights = RANDOM.random((10, 4), np.float32)

    def program() -> Any:
        layers = [keras.layers.TimeDistributed(keras.layers.Dense(2)), keras.layers.Softmax()]
        model = model_of("sequential", layers, (4, 3))
        model.compile("rmsprop", "mse", weighted_metrics=["mae"])
        x, y = (np.repeat(each[:, None], 4, axis=1) for each in (X, Y))
        history = model.fit(x, y, sample_weight=weights, **RUN).history
        return history, model.evaluate(x, y, sample_weight=weights, **RUN)

    alike(*twins(program))


@pytest.mark.parametrize("weights", [{"sample_weight": {"unknown": X}}, {"class_weight": {"u": 1}}])
def test_fit_with_incorrect_weights(weights: dict[str, Any]) -> None:
    inputs = keras.Input((3,))
    model = keras.Model(inputs, [keras.layers.Dense(2)(inputs), keras.layers.Dense(2)(inputs)])
    model.compile("adam", ["mse", "mse"])
    with on_ipus(), pytest.raises((ValueError, KeyError)):
        model.fit(X, [Y, Y], **weights, **RUN)
    assert len(model.get_weights()) == 4


def masked() -> list[Any]:
    dense = keras.layers.Dense(1, kernel_initializer="ones")
    return [keras.layers.Masking(mask_value=0), keras.layers.TimeDistributed(dense)]


@pytest.mark.parametrize("kind", KINDS)
def test_masking(kind: Kind) -> None:
    x = np.array([[[1], [1]], [[0], [0]]], np.float32)
    with on_ipus():
        model = model_of(kind, masked(), (2, 1))
        model.compile("rmsprop", "mse")
        assert model.train_on_batch(x, np.ones((2, 2, 1), np.float32)) == 0


def test_mask_argument_in_layer() -> None:
    class Masked(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.supports_masking = True
            self.masks: list[Any] = []

        def call(self, inputs: Any, mask: Any = None) -> Any:
            self.masks.append(mask)
            return inputs

    masked = Masked()
    inputs = keras.Input((3, 1))
    model = keras.Model(inputs, masked(keras.layers.Masking()(inputs)))
    model.compile("sgd", "mse")
    masked.masks.clear()
    with on_ipus():
        model.train_on_batch(X[:, :, None], X[:, :, None])
    assert masked.masks
    assert all(mask is not None for mask in masked.masks)


def test_metrics_masking() -> None:
    x = np.array([[[1], [1]], [[1], [1]], [[0], [0]]], np.float32)
    y = np.array([[[1], [1]], [[0], [1]], [[1], [1]]], np.float32)

    def program() -> Any:
        model = model_of("sequential", masked(), (2, 1))
        model.compile("rmsprop", "mse", weighted_metrics=["accuracy"])
        weights = np.array([[3, 3], [2, 2], [4, 4]], np.float32)
        return model.test_on_batch(x, y), model.test_on_batch(x, y, sample_weight=weights)

    ours, keras_own = twins(program)
    assert ours[0] == pytest.approx([0.25, 0.75])
    alike(ours, keras_own)


def test_trainable_argument() -> None:
    """A frozen layer predicts after training what it did before; so does it in another model."""
    with on_ipus():
        inner = model_of("sequential", [keras.layers.Dense(2, trainable=False)], (3,))
        outer = model_of("functional", [inner], (3,))
        for model in (inner, outer):
            model.compile("rmsprop", "mse")
            before = model.predict(X, verbose=0)
            model.train_on_batch(X, Y)
            alike(model.predict(X, verbose=0), before, rtol=0, atol=0)


def test_that_trainable_disables_updates() -> None:
    with on_ipus():
        norm = keras.layers.BatchNormalization()
        model = model_of("functional", [norm], (3,))
        for freeze, moves in [(model, False), (None, True), (norm, False)]:
            model.trainable = norm.trainable = True
            if freeze is not None:
                freeze.trainable = False
            model.compile("sgd", "mse")
            before = model.predict(X, batch_size=5, verbose=0)
            model.train_on_batch(X, X)
            after = model.predict(X, batch_size=5, verbose=0)
            assert np.any(before != after) == moves


def test_gan_workflow() -> None:
    """Two models with one layer, of which each was compiled when it was frozen or not."""
    with on_ipus():
        shared = keras.layers.BatchNormalization()
        for trainable in (False, True):
            shared.trainable = trainable
            model = model_of("functional", [shared], (3,))
            model.compile("sgd", "mse")
            before = model.predict_on_batch(X)
            model.train_on_batch(X, X)
            assert np.any(before != model.predict_on_batch(X)) == trainable


def test_weight_deduplication() -> None:
    """A variable that two layers hold is trained once."""

    class Watching(keras.layers.Layer):
        def __init__(self, dense: Any) -> None:
            super().__init__()
            self.kernel, self.bias = dense.kernel, dense.bias

        def call(self, inputs: Any) -> Any:
            return inputs

    inputs = keras.Input((1,))
    dense = keras.layers.Dense(1)
    outputs = dense(inputs)
    dense.set_weights([np.ones((1, 1)), np.zeros((1,))])
    model = keras.Model(inputs, Watching(dense)(outputs))
    model.compile(keras.optimizers.SGD(0.24), "mse")
    x = np.ones((128, 1), np.float32)
    with on_ipus():
        history = model.fit(x, 4.5 * x - 3, batch_size=64, epochs=2, verbose=0).history
    # Twice the learning rate would leave 0.15.
    assert history["loss"][-1] < 1e-3


class Extra(keras.layers.Dense):
    """A dense layer with a weight that it does not use."""

    def build(self, input_shape: Any) -> None:
        """Makes the weights."""
        super().build(input_shape)
        self.extra = self.add_weight(name="extra", shape=(), initializer="ones")


def test_gradients_are_none() -> None:
    """The original refuses such weights; their gradients are zeros in JAX, also when clipped."""

    def program() -> Any:
        model = model_of("sequential", [Extra(2)], (3,))
        model.compile(keras.optimizers.Adam(clipnorm=1.0), "mse")
        return model.fit(X, Y, **RUN).history, values(model.weights)

    alike(*twins(program))


def test_losses_of_different_dtypes() -> None:
    def regular(weight: Any) -> Any:
        return keras.ops.cast(keras.ops.sum(weight * weight) / 2, "float16")

    def program() -> Any:
        inputs = keras.Input((3,))
        outputs = [
            keras.layers.Dense(2, dtype=dtype, kernel_regularizer=regular)(inputs)
            for dtype in ("float32", "float16")
        ]
        model = keras.Model(inputs, outputs)
        model.compile("sgd", ["mse", "mse"])
        return model.fit(X, [Y, Y], **RUN).history, values(model.weights)

    alike(*twins(program), rtol=1e-3)


def test_model_with_partial_loss() -> None:
    """An output without a loss is predicted and measured, and not trained on."""

    def program() -> Any:
        inputs = keras.Input((3,), name="input_a")
        first = keras.layers.Dense(2, name="first")(inputs)
        model = keras.Model(inputs, {"first": first, "second": keras.layers.Dense(2)(first)})
        model.compile("rmsprop", {"first": None, "second": "mse"}, metrics={"first": "mae"})
        data = X, {"first": Y, "second": Y}
        return [
            model.fit(*data, **RUN).history,
            model.evaluate(*data, **RUN),
            model.train_on_batch(*data),
            model.test_on_batch(*data),
        ]

    alike(*twins(program))


def test_metric_state_reset_between_fit_and_evaluate() -> None:
    metric = keras.metrics.BinaryAccuracy()
    with on_ipus():
        model = model_of("sequential", [keras.layers.Dense(2, activation="sigmoid")], (3,))
        model.compile("rmsprop", "mae", metrics=[metric])
        model.fit(X, Y, epochs=2, **RUN)
        assert float(metric.count.value) == 10
        model.evaluate(X[:4], Y[:4], batch_size=2, verbose=0)
        assert float(metric.count.value) == 4


def test_int_output() -> None:
    class One(keras.metrics.Metric):
        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            pass

        def result(self) -> Any:
            return keras.ops.convert_to_tensor(1, dtype="int32")

    with on_ipus():
        model = model_of("sequential", [keras.layers.Dense(1)], (1,))
        model.compile("sgd", "mse", metrics=[One(name="one")])
        assert model.fit(ONES, ONES, epochs=2, **RUN).history["one"] == [1, 1]


class Counts(keras.layers.Layer):
    """Counts its calls: all of them, or those that train."""

    def __init__(self, training_only: bool) -> None:
        super().__init__()
        self.training_only = training_only
        self.counter = self.add_weight(
            name="counter", shape=(), dtype="int32", initializer="zeros", trainable=False
        )

    def call(self, inputs: Any, training: Any = None) -> Any:
        """Counts."""
        if training or not self.training_only:
            self.counter.assign(self.counter + 1)
        return inputs


# A subclassed model has to hand `training` to its layers itself.
@pytest.mark.parametrize(
    ("kind", "training_only"),
    [(kind, False) for kind in KINDS] + [("sequential", True), ("functional", True)],
)
def test_updates_in_model(kind: Kind, training_only: bool) -> None:
    layer = Counts(training_only)
    with on_ipus():
        model = model_of(kind, [layer, keras.layers.Dense(1)], (1,))
        model.compile("sgd", "mse")
        model.fit(ONES, ONES, batch_size=2, verbose=0)
        assert int(layer.counter.value) == 5
        model.evaluate(ONES, ONES, batch_size=2, verbose=0)
        assert int(layer.counter.value) == (5 if training_only else 10)


@pytest.mark.parametrize("kind", KINDS)
def test_batchnorm_trainable_false(kind: Kind) -> None:
    norm = keras.layers.BatchNormalization()
    norm.trainable = False
    with on_ipus():
        model = model_of(kind, [norm, keras.layers.Dense(1)], (3,))
        model.compile("sgd", "mse")
        model.fit(X, Y[:, :1], batch_size=2, verbose=0)
    np.testing.assert_array_equal(norm.moving_mean.value, np.zeros(3))
    np.testing.assert_array_equal(norm.moving_variance.value, np.ones(3))
