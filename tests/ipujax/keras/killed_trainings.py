"""Kills trainings of Keras at random moments, and has them go on until they end.

    python -m tests.ipujax.keras.killed_trainings --kills 100

Each training backs up its state and writes checkpoints in all of Keras's formats. A process of it
is killed, the next one must read everything and go on; the last one must end with the weights of a
training that was never disturbed. Prints one line of JSON for each training.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

from ipujax.ipu_strategy import IPUStrategy

EPOCHS = 4
SAVE_FREQS = ("epoch", 1, 2)
FORMATS = ("whole.keras", "only.weights.h5", "old.h5")


class Fed(keras.utils.PyDataset):
    """Batches that are changed at random when they are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.y = examples()

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rows = slice(index * 4, index * 4 + 4)
        noise = np.random.normal(size=(4, 4)).astype("float32")
        return self.x[rows] + noise, self.y[rows]


def examples() -> tuple[np.ndarray, np.ndarray]:
    """Noise."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(24, 4)), rng.normal(size=(24, 2))
    return x.astype("float32"), y.astype("float32")


def endless() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches without end."""
    rng = np.random.default_rng(1)
    while True:
        yield rng.normal(size=(4, 4)).astype("float32"), rng.normal(size=(4, 2)).astype("float32")


def endless_arguments() -> dict[str, Any]:
    """A generator, and how many of its batches are an epoch."""
    return {"x": endless(), "steps_per_epoch": 6, "shuffle": False}


def array_arguments() -> dict[str, Any]:
    """Arrays that are shuffled."""
    x, y = examples()
    return {"x": x, "y": y, "batch_size": 4}


DATA: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": array_arguments,
    "sequence": lambda: {"x": Fed()},
    "generator": endless_arguments,
}


class Paced(keras.callbacks.Callback):
    """Tells that a training has begun, and has it take its time."""

    def __init__(self, ready: int | None):
        super().__init__()
        self._ready = ready

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """After each batch."""
        if self._ready is not None:
            os.write(self._ready, b"!")
            self._ready = None


def build_model() -> Any:
    """A model with random numbers and moving averages."""
    layers = [keras.Input((4,)), keras.layers.Dense(64), keras.layers.Dropout(0.4)]
    layers += [keras.layers.BatchNormalization(), keras.layers.Dense(2)]
    return keras.Sequential(layers)


def train(folder: Path, data: str, save_freq: Any, ready: int | None = None) -> str:
    """Trains to the end: a digest of the weights."""
    keras.utils.set_random_seed(1)
    with IPUStrategy().scope():
        model = build_model()
        model.compile("adam", "mse", metrics=["mae"])
        backup = keras.callbacks.BackupAndRestore(folder / "backup", save_freq=save_freq)
        checkpoints = [
            keras.callbacks.ModelCheckpoint(
                folder / name, save_weights_only=".weights." in name, save_freq=save_freq
            )
            for name in FORMATS
        ]
        callbacks = [backup, *checkpoints, Paced(ready)]
        model.fit(**DATA[data](), epochs=EPOCHS, verbose=0, callbacks=callbacks)
    return hashlib.sha256(b"".join(map(np.ndarray.tobytes, model.get_weights()))).hexdigest()


def read_all(folder: Path) -> None:
    """Reads the checkpoints of a training that was killed; raises if one cannot be read."""
    for name in FORMATS:
        path = folder / name
        if path.exists() and ".weights." in name:
            build_model().load_weights(path)
        elif path.exists():
            keras.saving.load_model(path, compile=path.suffix != ".h5")  # Keras cannot


def run_in_child(function: Callable[[int], str], seconds: float | None) -> str | None:
    """Runs a function in a process, which is killed some seconds after it is ready.

    Returns:
      The text that the function gives; None if the process was killed before.
    """
    reader, ready = os.pipe()
    answer, answers = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(answers, function(ready).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(ready)
    os.close(answers)
    try:
        os.read(reader, 1)
        if seconds is not None:
            time.sleep(seconds)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        text = os.read(answer, 1000).decode()
        _, status = os.waitpid(child, 0)
    finally:
        os.close(reader)
        os.close(answer)
    if os.WIFSIGNALED(status):
        return None
    if status:
        raise RuntimeError("a process of a training raised")
    return text


def disturb(data: str, save_freq: Any, kills: int, moments: random.Random) -> dict[str, Any]:
    """Kills one training so often, at most; returns counts."""

    def go_on(ready: int) -> str:
        read_all(folder)
        return train(folder, data, save_freq, ready)

    with tempfile.TemporaryDirectory() as place:
        begin = time.perf_counter()
        folder = Path(place, "undisturbed")
        wanted = run_in_child(lambda ready: train(folder, data, save_freq, ready), None)
        folder.mkdir(exist_ok=True)
        begin = time.perf_counter()
        folder = Path(place, "disturbed")
        folder.mkdir()
        killed = 0
        weights = None
        while weights is None and killed < kills:
            weights = run_in_child(go_on, moments.uniform(0, 0.12))
            killed += weights is None
        weights = weights or run_in_child(go_on, None)
        left = [path.name for path in folder.rglob(".ipujax-*")]
    return {
        "data": data,
        "save_freq": save_freq,
        "kills": killed,
        "same": weights == wanted,
        "left": len(left),
        "seconds": round(time.perf_counter() - begin),
    }


def main() -> None:
    """Kills trainings of all kinds in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="in all")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    moments, left = random.Random(arguments.seed), arguments.kills
    kinds = [(data, save_freq) for save_freq in SAVE_FREQS for data in DATA]
    number = 0
    while left > 0:
        counts = disturb(*kinds[number % len(kinds)], min(left, 4), moments)
        left, number = left - counts["kills"], number + 1
        print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
