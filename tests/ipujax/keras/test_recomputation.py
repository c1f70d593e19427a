"""The layer RecomputationCheckpoint: gives what it gets, and marks it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

keras = pytest.importorskip("keras")
from ipujax.keras import layers  # noqa: E402

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def names(jaxpr: Any) -> list[str]:
    return [equation.primitive.name for equation in jaxpr.eqns]


def test_structures_stay_and_every_array_is_marked():
    inputs = {"a": X, "b": [X + 1, np.arange(3)]}
    layer = layers.RecomputationCheckpoint()
    jax.tree.map(np.testing.assert_array_equal, layer(inputs), inputs)
    traced = jax.make_jaxpr(layer)(inputs)
    assert names(traced).count("ipu_recomputation_checkpoint") == 3


def test_in_a_model():
    inputs = [keras.Input((3,)), keras.Input((2,), dtype="int32")]
    outputs = layers.RecomputationCheckpoint()(inputs)
    assert [(t.shape, t.dtype) for t in outputs] == [((None, 3), "float32"), ((None, 2), "int32")]
    model = keras.Sequential([keras.Input((3,)), layers.RecomputationCheckpoint()])
    np.testing.assert_array_equal(model(X), X)


def test_gradients_pass():
    layer = layers.RecomputationCheckpoint()
    gradient = jax.grad(lambda x: (layer(x) ** 2).sum())(X)
    np.testing.assert_array_equal(gradient, 2 * X)
