"""Training Keras's models in the scope of a strategy, against Keras alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from benchmarks.measure import Row, row
from ipujax.ipu_strategy import IPUStrategy

CLASSES = 10


def rows() -> list[Row]:
    """Steps of a convolutional and of a dispatch-bound model, and what the first ones take."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    return [
        row(
            "keras fit of a small CNN, steps_per_execution=32 / Keras alone",
            0.9,
            *(_epochs(scope, _cnn, (16, 16, 3), 16, 32, 160) for scope in (_inside, _outside)),
            pairs=5,
        ),
        row(
            "keras fit of a small MLP, steps_per_execution=100 / Keras alone",
            0.5,
            *(_epochs(scope, _mlp, (64,), 32, 100, 2000) for scope in (_inside, _outside)),
            pairs=5,
        ),
        row(
            "keras fit of a new CNN, first execution of 32 steps / Keras alone",
            1.3,
            *(_first(scope) for scope in (_inside, _outside)),
            pairs=5,
        ),
    ]


@contextlib.contextmanager
def _inside() -> Generator[None]:
    with IPUStrategy().scope():
        yield


_Scope = Callable[[], contextlib.AbstractContextManager[Any]]
_outside: _Scope = contextlib.nullcontext


def _epochs(
    scope: _Scope,
    make: Callable[[], Any],
    shape: tuple[int, ...],
    batch_size: int,
    steps: int,
    batches: int,
) -> Callable[[], None]:
    """An epoch of so many batches, `steps` in an execution; the model is made before."""
    x, y = _data(batch_size * batches, shape)
    with scope():
        model = _compiled(make(), steps)

    def epoch() -> None:
        with scope():
            model.fit(x, y, batch_size=batch_size, verbose=0)

    return epoch


def _first(scope: _Scope) -> Callable[[], None]:
    """A model from its making to the end of its first execution: mostly tracing and compiling."""
    x, y = _data(16 * 32, (16, 16, 3))

    def first() -> None:
        with scope():
            _compiled(_cnn(), 32).fit(x, y, batch_size=16, verbose=0)

    return first


def _compiled(model: Any, steps: int) -> Any:
    loss = "sparse_categorical_crossentropy"
    model.compile("adam", loss, metrics=["accuracy"], steps_per_execution=steps)
    return model


def _data(examples: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(examples, *shape)).astype(np.float32)
    return x, rng.integers(0, CLASSES, examples)


def _mlp() -> Any:
    import keras
    from keras import layers

    hidden = [layers.Dense(64, activation="relu") for _ in range(2)]
    last = layers.Dense(CLASSES, activation="softmax")
    return keras.Sequential([keras.Input((64,)), *hidden, last])


def _cnn() -> Any:
    import keras
    from keras import layers

    model = keras.Sequential([keras.Input((16, 16, 3))])
    for features, strides in ((16, 1), (32, 2)):
        model.add(layers.Conv2D(features, 3, strides, padding="same", use_bias=False))
        model.add(layers.BatchNormalization())
        model.add(layers.Activation("relu"))
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dense(CLASSES, activation="softmax"))
    return model
