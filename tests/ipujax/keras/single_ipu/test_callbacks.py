"""Callbacks are called as by Keras alone: the original's `callbacks_test.py`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.ipujax.keras.twins import KINDS, Counter, Kind, alike, keras, model_of, on_ipus, twins

X, Y = np.ones((10, 10), np.float32), np.ones((10, 1), np.float32)


def binary(kind: Kind = "sequential", **more: Any) -> Any:
    layers = [
        keras.layers.Dense(4, activation="relu"),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
    model = model_of(kind, layers, (10,))
    model.compile("adam", "binary_crossentropy", **more)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_callback_hooks_are_called_in_fit(kind: Kind) -> None:
    def program() -> Counter:
        counter = Counter()
        binary(kind).fit(
            X, Y, validation_data=(X[:4], Y[:4]), batch_size=2, epochs=3, callbacks=[counter],
            verbose=0,
        )  # fmt: skip
        return counter

    ours, keras_own = twins(program)
    assert ours.order == keras_own.order
    expected = {"train": 1, "epoch": 3, "train_batch": 15, "test": 3, "test_batch": 6}
    for phase, count in expected.items():
        assert ours.counts[f"on_{phase}_begin"] == count
        assert ours.counts[f"on_{phase}_end"] == count
    assert ours.counts["on_predict_begin"] == ours.counts["on_predict_batch_end"] == 0


@pytest.mark.parametrize("steps_per_execution", [2, 5])
def test_callback_hooks_are_called_once_per_execution(steps_per_execution: int) -> None:
    def program() -> Counter:
        counter = Counter()
        model = binary(steps_per_execution=steps_per_execution)
        model.fit(X, Y, batch_size=1, epochs=2, callbacks=[counter], verbose=0)
        return counter

    ours, keras_own = twins(program)
    assert ours.order == keras_own.order
    assert ours.counts["on_train_batch_end"] == 2 * 10 // steps_per_execution


def test_callback_hooks_are_called_in_evaluate() -> None:
    counter = Counter()
    with on_ipus():
        binary().evaluate(X, Y, batch_size=2, callbacks=[counter], verbose=0)
    assert counter.counts["on_test_begin"] == counter.counts["on_test_end"] == 1
    assert counter.counts["on_test_batch_begin"] == counter.counts["on_test_batch_end"] == 5


def test_callback_hooks_are_called_in_predict() -> None:
    counter = Counter()
    with on_ipus():
        binary().predict(X, batch_size=2, callbacks=[counter], verbose=0)
    assert counter.counts["on_predict_begin"] == counter.counts["on_predict_end"] == 1
    assert counter.counts["on_predict_batch_begin"] == counter.counts["on_predict_batch_end"] == 5


@pytest.mark.parametrize("built", [True, False])
def test_progbar_logging(built: bool, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of("sequential", [keras.layers.Dense(2)], (3,) if built else None)
    model.compile("rmsprop", "mse", metrics=[keras.metrics.CategoricalAccuracy(name="my_acc")])
    x, y = np.ones((100, 3), np.float32), np.zeros((100, 2), np.float32)
    with on_ipus():
        model.fit(x, y, batch_size=10, epochs=2, validation_split=0.2)
    printed = capsys.readouterr().out
    assert "Epoch 2/2" in printed
    assert len(re.findall("8/8.*loss:.*val_loss:.*val_my_acc:", printed)) == 2


def test_progbar_logging_with_stateful_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    class AddAllOnes(keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="add_all_ones")
            self.total = self.add_weight(name="total", initializer="zeros")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.total.assign_add(keras.ops.sum(keras.ops.cast(y_true, "float32")))

        def result(self) -> Any:
            return self.total.value

    targets = np.array([[1, 0], [0, 0], [1, 1], [1, 0], [0, 1], [1, 0], [1, 0], [0, 0]], np.int32)
    model = model_of("sequential", [keras.layers.Dense(2)], (8,))
    model.compile("rmsprop", "mse", metrics=[AddAllOnes()])
    x = np.ones((8, 8), np.float32)
    with on_ipus():
        history = model.fit(x, targets, batch_size=4, shuffle=False)
        model.evaluate(x, targets, batch_size=4)
    assert history.history["add_all_ones"] == [7.0]
    assert len(re.findall("add_all_ones: 7.0000", capsys.readouterr().out)) >= 2


def test_default_callbacks_no_warning(capsys: pytest.CaptureFixture[str]) -> None:
    """A warning would be an error of the test."""
    model = model_of("sequential", [keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with on_ipus():
        model.fit(X, Y, batch_size=5, verbose=0)
    assert "warn" not in capsys.readouterr().out.lower()


def test_callback_passed_floats() -> None:
    kinds: list[type] = []

    class Kinds(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            kinds.append(type(logs["loss"]))

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            kinds.append(type(logs["loss"]))

    with on_ipus():
        binary().fit(X, Y, epochs=2, batch_size=10, callbacks=[Kinds()], verbose=0)
    assert kinds == [float] * 4


def test_implements_batch_hooks() -> None:
    """Hooks of batches are called where a callback has them, each with the logs of its batch."""

    class Batches(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.losses: list[float] = []
            self.predicted: list[Any] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.losses.append(logs["loss"])

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            self.losses.append(logs["loss"])

        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            self.predicted.append(np.asarray(logs["outputs"]))

    def program() -> tuple[list[float], list[Any]]:
        batches, model = Batches(), binary()
        model.fit(X, Y, epochs=2, batch_size=5, callbacks=[batches], verbose=0)
        model.evaluate(X, Y, batch_size=5, callbacks=[batches], verbose=0)
        model.predict(X, batch_size=5, callbacks=[batches], verbose=0)
        return batches.losses, batches.predicted

    (losses, predicted), keras_own = twins(program)
    assert len(losses) == 6
    assert len(predicted) == 2
    alike((losses, predicted), keras_own)


def test_stop_training_batch_level() -> None:
    class StopAtThird(keras.callbacks.Callback):
        batches = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.batches += 1
            if batch == 2:
                self.model.stop_training = True

    stop = StopAtThird()
    with on_ipus():
        binary().fit(X, Y, batch_size=2, epochs=2, callbacks=[stop], verbose=0)
    assert stop.batches == 3


def test_lambda_callback() -> None:
    ended: list[Any] = []
    with on_ipus():
        binary().fit(
            X, Y, verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_train_end=ended.append)]
        )
    assert [sorted(logs) for logs in ended] == [["loss"]]


def test_calling_evaluate_in_callback_during_fit() -> None:
    """What a callback evaluates neither reads nor changes the validation of `fit`."""
    zeros = np.zeros((10, 10), np.float32), np.zeros((10, 1), np.float32)
    seen: list[float] = []

    class Evaluate(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append(self.model.evaluate(*zeros, batch_size=5, verbose=0))

    with on_ipus():
        model = model_of("sequential", [keras.layers.Dense(1, use_bias=False)], (10,))
        model.compile("sgd", "mse")
        history = model.fit(
            X, Y + 50, batch_size=5, epochs=2, validation_data=(X, Y), callbacks=[Evaluate()],
            verbose=0,
        )  # fmt: skip
    assert seen == [0.0, 0.0]
    assert all(loss > 0.1 for loss in history.history["val_loss"])
