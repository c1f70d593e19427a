"""Trainings that are killed and go on end with the weights of those that nothing disturbed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("keras")

import h5py
import keras
import numpy as np

from ipujax.errors import KerasError
from ipujax.ipu_strategy import IPUStrategy
from tests.harness import ROOT
from tests.ipujax.keras.killed_trainings import DATA, train


class Interrupted(Exception):
    """What ends a training in the middle."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("kills", [9, pytest.param(100, marks=pytest.mark.complete)])
def test_killed_trainings_end_with_the_same_weights(kills: int) -> None:
    # A process of its own, since only one without threads can be forked.
    arguments = [sys.executable, "-m", "tests.ipujax.keras.killed_trainings", "--kills", str(kills)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        arguments, capture_output=True, text=True, cwd=ROOT, env=environment, check=True
    )
    counts = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(each["kills"] for each in counts) == kills
    assert [each for each in counts if not each["same"] or each["left"]] == []


def interrupt_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a training end as if it were killed, between two of its writes."""
    save = keras.callbacks.BackupAndRestore._save_model
    left = iter(range(calls))

    def save_or_end(callback: Any) -> None:
        if next(left, None) is None:
            raise Interrupted
        save(callback)

    monkeypatch.setattr(keras.callbacks.BackupAndRestore, "_save_model", save_or_end)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("save_freq", ["epoch", 1, 4])
@pytest.mark.parametrize("saved", [1, 3])
def test_an_interrupted_training_goes_on_where_it_was(
    data: str, save_freq: Any, saved: int, tmp_path: Path
) -> None:
    wanted = train(tmp_path / "undisturbed", data, save_freq)
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after(saved, patch)
        with pytest.raises(Interrupted):
            train(tmp_path / "disturbed", data, save_freq)
    keras.utils.set_random_seed(2)
    assert train(tmp_path / "disturbed", data, save_freq) == wanted
    assert not (tmp_path / "disturbed" / "backup").exists()


def build(**options: Any) -> Any:
    """A model of one layer, compiled."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"], **options)
    return model


def fit(model: Any, folder: Path, *callbacks: Any, **options: Any) -> Any:
    """Trains with a backup."""
    own = keras.callbacks.BackupAndRestore(folder, **options)
    x = np.arange(16, dtype=np.float32).reshape(8, 2) / 16
    with IPUStrategy().scope():
        return model.fit(
            x, x[:, :1], batch_size=2, epochs=3, verbose=0, callbacks=[own, *callbacks]
        )


def interrupt(epoch: int, batch: int = 3) -> Any:
    """Ends a training after a batch of an epoch, behind the callbacks that save."""
    epochs: list[int] = []

    def end(number: int, logs: Any) -> None:
        if epochs[-1] == epoch and number == batch:
            raise Interrupted

    return keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda number, logs: epochs.append(number), on_train_batch_end=end
    )


def test_metrics_and_epochs_go_on_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    whole = fit(build(), tmp_path / "whole").history
    keras.utils.set_random_seed(0)
    with pytest.raises(Interrupted):
        fit(build(), tmp_path / "b", interrupt(1, 1), save_freq=1)
    rest = fit(build(), tmp_path / "b", save_freq=1)
    assert rest.epoch == [1, 2]
    for name, values in rest.history.items():
        np.testing.assert_allclose(values, whole[name][1:], rtol=1e-6)


def test_a_second_interruption_knows_the_epoch(tmp_path: Path) -> None:
    for epoch in (1, 2):
        with pytest.raises(Interrupted):
            fit(build(), tmp_path / "b", interrupt(epoch, 1), save_freq=1)
    assert fit(build(), tmp_path / "b", save_freq=1).epoch == [2]


def test_a_later_fit_begins_with_its_own_epoch(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        fit(build(), tmp_path / "b", interrupt(2))
    model = build()
    assert fit(model, tmp_path / "b").epoch == [2]
    assert fit(model, tmp_path / "b").epoch == [0, 1, 2]


def test_a_backup_without_weights_is_none(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "training_metadata.json").write_text('{"epoch": 3, "batch": 0}')
    assert fit(build(), tmp_path / "b").epoch == [0, 1, 2]


def test_the_file_of_weights_says_the_epoch(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        fit(build(), tmp_path / "b", interrupt(2))
    (tmp_path / "b" / "training_metadata.json").write_text('{"epo')  # as a kill leaves it
    assert fit(build(), tmp_path / "b").epoch == [2]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("training_metadata.json", "training_metadata.json is no JSON"),
        ("latest.weights.h5", "latest.weights.h5 cannot be read"),
    ],
)
def test_halves_that_keras_left_are_told(name: str, message: str, tmp_path: Path) -> None:
    own = keras.callbacks.BackupAndRestore(tmp_path / "b")
    x = np.ones((4, 2), np.float32)
    with pytest.raises(Interrupted):  # outside the scope
        build().fit(x, x[:, :1], 2, 3, verbose=0, callbacks=[own, interrupt(2, 1)])
    path = tmp_path / "b" / name
    path.write_bytes(path.read_bytes()[:7])
    with pytest.raises(KerasError, match=f"{message}(.|\n)*delete the folder"):
        fit(build(), tmp_path / "b")


def test_backups_of_keras_are_read_and_ours_are_its_own(tmp_path: Path) -> None:
    own = keras.callbacks.BackupAndRestore(tmp_path / "b")
    x = np.ones((4, 2), np.float32)
    with pytest.raises(Interrupted):
        build().fit(x, x[:, :1], 2, 3, verbose=0, callbacks=[own, interrupt(2, 1)])
    with pytest.raises(Interrupted):
        fit(build(), tmp_path / "b", interrupt(2, 1))
    own = keras.callbacks.BackupAndRestore(tmp_path / "b")
    assert build().fit(x, x[:, :1], 2, 3, verbose=0, callbacks=[own]).epoch == [2]


def test_another_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        fit(build(), tmp_path / "b", interrupt(2))
    layers = [keras.Input((2,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("sgd", "mse")
    with pytest.raises(KerasError, match="is of a model with 0 random generators"):
        fit(model, tmp_path / "b")


@pytest.mark.parametrize("name", ["a.keras", "a.weights.h5", "a.h5"])
def test_a_file_is_replaced_once_it_is_whole(name: str, tmp_path: Path) -> None:
    model, path = build(), tmp_path / name
    save: Callable[..., Any] = model.save_weights if ".weights." in name else model.save
    with IPUStrategy().scope():
        save(path)
        first = path.read_bytes()
        path.chmod(0o640)
        os.link(path, tmp_path / "kept")
        save(path)
    assert (tmp_path / "kept").read_bytes() == first
    assert not path.samefile(tmp_path / "kept")
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([name, "kept"])


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    model, path = build(), tmp_path / "a.keras"
    with IPUStrategy().scope():
        model.save(path)
        before = path.read_bytes()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(h5py, "File", None)
            with pytest.raises(TypeError):
                model.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_folders_and_shards_are_keras_own(tmp_path: Path) -> None:
    model = build()
    with IPUStrategy().scope():
        model.save(tmp_path / "folder", zipped=False)
        model.save_weights(tmp_path / "a.weights.json", max_shard_size=1)
        model.save(tmp_path / "new" / "a.h5")  # Keras makes the folder
    keras.saving.load_model(tmp_path / "folder")
    model.load_weights(tmp_path / "a.weights.json")
    assert (tmp_path / "new" / "a.h5").exists()
