"""Keras's own callbacks read and write the model between executions: `callbacks_test.py`."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ipujax.keras.twins import alike, keras, model_of, on_ipus, twins, values

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(20, 5)).astype(np.float32)
Y = keras.utils.to_categorical(RANDOM.integers(0, 2, 20), 2)
TEST_X, TEST_Y = X[:10] * 0.5, Y[:10]
RUN: dict[str, Any] = {"batch_size": 5, "validation_data": (TEST_X, TEST_Y), "verbose": 0}


def classifier(optimizer: Any = "sgd") -> Any:
    layers = [
        keras.layers.Dense(4, activation="relu"),
        keras.layers.Dense(2, activation="softmax"),
    ]
    model = model_of("sequential", layers, (5,))
    model.compile(optimizer, "categorical_crossentropy", metrics=["acc"])
    return model


@pytest.mark.parametrize(
    ("mode", "monitor"),
    [("max", "val_acc"), ("min", "val_loss"), ("auto", "val_acc"), ("auto", "loss")],
)
def test_early_stopping(mode: str, monitor: str) -> None:
    def program() -> Any:
        stop = keras.callbacks.EarlyStopping(patience=0, monitor=monitor, mode=mode)
        return classifier("rmsprop").fit(X, Y, epochs=4, callbacks=[stop], **RUN).history

    alike(*twins(program))


@pytest.mark.exhaustive
def test_early_stopping_restores_the_best_weights() -> None:
    class KeepEpochs(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.weights: list[Any] = []

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.weights.append(self.model.get_weights())

    keep = KeepEpochs()
    # The loss of training falls, so "max" calls the first epoch the best.
    stop = keras.callbacks.EarlyStopping(
        monitor="loss", mode="max", patience=2, restore_best_weights=True
    )
    with on_ipus():
        model = classifier()
        model.fit(X, Y, epochs=6, callbacks=[keep, stop], **RUN)
    assert len(keep.weights) == 3
    alike(model.get_weights(), keep.weights[0], rtol=0, atol=0)


def test_early_stopping_with_baseline() -> None:
    stop = keras.callbacks.EarlyStopping(monitor="acc", baseline=1.1, patience=2)
    with on_ipus():
        history = classifier().fit(X, Y, epochs=6, callbacks=[stop], **RUN)
    assert len(history.epoch) == 2


def test_learning_rate_scheduler() -> None:
    def program() -> tuple[Any, float]:
        model = classifier()
        fall = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / (1.0 + epoch))
        history = model.fit(X, Y, epochs=3, callbacks=[fall], **RUN)
        return history.history, float(model.optimizer.learning_rate)

    (history, rate), keras_own = twins(program)
    alike((history, rate), keras_own)
    assert rate == pytest.approx(0.01 / 6)
    assert history["learning_rate"] == pytest.approx([0.01, 0.005, 0.01 / 6])


@pytest.mark.parametrize(("min_delta", "expected"), [(0.0, 0.1), (10.0, 0.01)])
def test_reduce_lr_on_plateau(min_delta: float, expected: float) -> None:
    plateau = keras.callbacks.ReduceLROnPlateau(
        monitor="loss", factor=0.1, min_delta=min_delta, patience=1, cooldown=5
    )
    with on_ipus():
        model = classifier(keras.optimizers.SGD(0.1))
        model.fit(X, Y, epochs=2, callbacks=[plateau], **RUN)
    assert float(model.optimizer.learning_rate) == pytest.approx(expected)


def test_csv_logger(tmp_path: Path) -> None:
    path = tmp_path / "log.tsv"
    with on_ipus():
        model = classifier()
        for append in (False, True):
            logger = keras.callbacks.CSVLogger(str(path), separator="\t", append=append)
            model.fit(X, Y, epochs=2, callbacks=[logger], **RUN)
    rows = list(csv.reader(path.read_text().splitlines(), delimiter="\t"))
    assert rows[0] == ["epoch", "acc", "loss", "val_acc", "val_loss"]
    assert [row[0] for row in rows[1:]] == ["0", "1"] * 2
    assert all(len(row) == 5 for row in rows)


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_terminate_on_nan(steps_per_execution: int) -> None:
    """The model stays usable: it keeps the weights of the last execution."""
    layers = [
        keras.layers.Dense(
            2, activation="relu", kernel_initializer=keras.initializers.Constant(1e5)
        )
        for _ in range(5)
    ]
    model = model_of("sequential", [*layers, keras.layers.Dense(2)], (5,))
    model.compile("rmsprop", "mse", steps_per_execution=steps_per_execution)
    with on_ipus():
        history = model.fit(
            np.abs(X) * 1e10, Y, epochs=20, callbacks=[keras.callbacks.TerminateOnNaN()], **RUN
        )
    assert len(history.history["loss"]) == 1
    assert not np.isfinite(history.history["loss"][0])
    assert len(model.get_weights()) == 12


@pytest.mark.parametrize("weights_only", [True, False])
def test_model_checkpoint(tmp_path: Path, weights_only: bool) -> None:
    """A file per epoch, each with the weights that the model had then."""
    suffix = ".weights.h5" if weights_only else ".keras"
    path = str(tmp_path / ("{epoch:02d}" + suffix))
    save = keras.callbacks.ModelCheckpoint(path, save_weights_only=weights_only)
    with on_ipus():
        model = classifier("adam")
        model.fit(X, Y, epochs=2, callbacks=[save], **RUN)
        trained = values(model.weights)
        first, second = (str(tmp_path / f"0{epoch}{suffix}") for epoch in (1, 2))
        if weights_only:
            loaded = classifier("adam")
            loaded.optimizer.build(loaded.trainable_variables)
            loaded.load_weights(second)
        else:
            loaded = keras.models.load_model(second)
        alike(values(loaded.weights), trained, rtol=0, atol=0)
        if weights_only:
            loaded.load_weights(first)
            assert any(
                np.any(one != other)
                for one, other in zip(values(loaded.weights), trained, strict=True)
            )
        # What was loaded trains on as the model itself does.
        ours, other = (each.fit(X, Y, shuffle=False, **RUN).history for each in (model, loaded))
    if not weights_only:
        alike(ours, other)


def test_model_checkpoint_of_batches_and_of_the_best(tmp_path: Path) -> None:
    best = keras.callbacks.ModelCheckpoint(
        str(tmp_path / "best.keras"), monitor="loss", mode="max", save_best_only=True
    )
    often = keras.callbacks.ModelCheckpoint(str(tmp_path / "{batch:02d}.keras"), save_freq=2)
    with on_ipus():
        model = classifier()
        history = model.fit(X, Y, epochs=2, callbacks=[best, often], **RUN)
    assert history.history["loss"][1] < history.history["loss"][0] == best.best
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "02.keras",
        "04.keras",
        "best.keras",
    ]


def test_model_checkpoint_with_bad_path_placeholders(tmp_path: Path) -> None:
    """The error is Keras's, and the model keeps its weights."""
    save = keras.callbacks.ModelCheckpoint(str(tmp_path / "{epoch:02d}_{mape:.2f}.keras"))
    with on_ipus():
        model = classifier()
        with pytest.raises(KeyError, match="Failed to format this callback filepath"):
            model.fit(X, Y, callbacks=[save], **RUN)
        assert len(model.get_weights()) == 4
        model.fit(X, Y, **RUN)


@pytest.mark.exhaustive
def test_backup_and_restore(tmp_path: Path) -> None:
    """A `fit` that ended early goes on where it was."""

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 2:
                raise RuntimeError("interrupted")

    def backup(name: str) -> Any:
        return keras.callbacks.BackupAndRestore(str(tmp_path / name))

    def program() -> Any:
        name = f"{len(list(tmp_path.iterdir()))}"
        model = classifier("adam")
        with pytest.raises(RuntimeError, match="interrupted"):
            model.fit(X, Y, epochs=4, shuffle=False, callbacks=[backup(name), Interrupt()], **RUN)
        again = classifier("adam")
        history = again.fit(X, Y, epochs=4, shuffle=False, callbacks=[backup(name)], **RUN)
        return history.epoch, history.history, values(again.weights)

    ours, keras_own = twins(program)
    assert ours[0] == [2, 3]
    alike(ours, keras_own)
