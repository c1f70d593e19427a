"""Keras's callbacks on a disk that is full: the error names the callback, the path and the fix."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("keras")

import keras

import ipujax as ipu
from ipujax.errors import KerasError, KerasFileError

X, Y = np.ones((8, 3), np.float32), np.ones((8, 1), np.float32)


def train(callback: Any) -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(X, Y, verbose=0, callbacks=[callback])


def refuse(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("name", ["weights", "model", "backup"])
def test_a_callback_that_cannot_save_names_its_path(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keras.Model, "save_weights", refuse)
    monkeypatch.setattr(keras.Model, "save", refuse)
    callbacks = keras.callbacks
    callback, path = {
        "weights": lambda: (
            callbacks.ModelCheckpoint(tmp_path / "a.weights.h5", save_weights_only=True),
            tmp_path / "a.weights.h5",
        ),
        "model": lambda: (callbacks.ModelCheckpoint(tmp_path / "a.keras"), tmp_path / "a.keras"),
        "backup": lambda: (callbacks.BackupAndRestore(tmp_path / "b"), tmp_path / "b"),
    }[name]()
    with ipu.ipu_strategy.IPUStrategy().scope(), pytest.raises(KerasFileError) as caught:
        train(callback)
    assert isinstance(caught.value, (OSError, KerasError))
    text = f"{type(callback).__name__} cannot write {path}: No space left on device"
    assert text in str(caught.value)
    assert "make room there" in caught.value.fix


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_log_on_a_full_disk_names_its_path() -> None:
    callback = keras.callbacks.CSVLogger("/dev/full")
    with (
        ipu.ipu_strategy.IPUStrategy().scope(),
        pytest.raises(KerasFileError, match="CSVLogger cannot write /dev/full: No space left"),
    ):
        train(callback)
    with contextlib.suppress(OSError):
        callback.csv_file.close()  # pyright: ignore[reportOptionalMemberAccess]
