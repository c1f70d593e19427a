"""Small Keras models and data, and what a model gives with and without the strategy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np

from ipujax.ipu_strategy import IPUStrategy


def images(count: int = 44) -> tuple[np.ndarray, np.ndarray]:
    """Noise, and what class each is of."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, 8, 8, 2)).astype("float32"), rng.integers(0, 4, count)


def compiled(model: Any, optimizer: Any = "adam", **options: Any) -> Any:
    """The model, to learn the classes of `images`."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], **options)
    return model


def cnn(*, normalized: bool = True, **options: Any) -> Any:
    """A compiled model with batch norm and dropout, the same each time."""
    keras.utils.set_random_seed(1)
    layers = [
        keras.layers.Input((8, 8, 2)),
        keras.layers.Conv2D(4, 3, activation="relu"),
        *([keras.layers.BatchNormalization()] if normalized else []),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.3),
        keras.layers.Dense(4),
    ]
    return compiled(keras.Sequential(layers), **options)


def with_and_without(use: Callable[[], Any]) -> tuple[Any, Any]:
    """What a function gives in the scope of a strategy, and outside."""
    results = []
    for scope in (IPUStrategy().scope(), contextlib.nullcontext()):
        with scope:
            results.append(use())
    return results[0], results[1]


def points(count: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Four numbers each, and two to predict of them."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(count, 4)), rng.normal(size=(count, 2))
    return x.astype("float32"), y.astype("float32")


def dense(inputs: int = 4, optimizer: Any = "sgd", loss: Any = "mse", **options: Any) -> Any:
    """A compiled model of one layer, the same each time."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((inputs,)), keras.layers.Dense(2)])
    model.compile(optimizer() if callable(optimizer) else optimizer, loss, **options)
    return model


def numbers_agree(use: Callable[[], Any]) -> Any:
    """Checks that a function gives the same in the scope of a strategy and outside; gives that."""
    ours, theirs = with_and_without(use)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        assert np.shape(one) == np.shape(other)
    return ours
