"""The layer Dropout: its rates, masks and seeds, eagerly, in functions and in models."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from ipujax.errors import ConfigTypeError, OperatorError

keras = pytest.importorskip("keras")
from ipujax.keras import layers  # noqa: E402

X = np.random.default_rng(0).uniform(1, 2, 1000).astype(np.float32)


def dropped(x: Any, *, seed: Any = (42, 42), training: bool | None = True, **options: Any) -> Any:
    return np.asarray(layers.Dropout(seed=seed, **options)(x, training=training))


@pytest.mark.fact("dropout_rng.layer_rates")
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3, 0.5, 0.7, 0.99])
def test_the_rate_is_dropped_and_the_others_are_scaled(rate):
    many = np.concatenate([X] * 20)
    result = dropped(many, rate=rate)
    kept = result != 0
    np.testing.assert_allclose(1 - kept.mean(), rate, rtol=0.05)
    np.testing.assert_allclose(result[kept], many[kept] / (1 - rate), rtol=1e-5)


@pytest.mark.parametrize("seed", [(42, 42), 7, -1, np.array([1, 2]), 1 << 40])
def test_equal_seeds_give_equal_masks(seed):
    first, second = (layers.Dropout(0.5, seed=seed) for _ in range(2))
    for _ in range(3):
        np.testing.assert_array_equal(first(X, training=True), second(X, training=True))


def test_masks_differ_between_calls_and_seeds():
    layer = layers.Dropout(0.5, seed=[1, 2])
    masks = [np.asarray(layer(X, training=True)) != 0 for _ in range(3)]
    masks += [dropped(X, rate=0.5, seed=seed) != 0 for seed in ((2, 1), (1, 3), 1)]
    assert len({mask.tobytes() for mask in masks}) == len(masks)


def test_without_a_seed_keras_decides():
    keras.utils.set_random_seed(3)
    first = dropped(X, rate=0.5, seed=None)
    assert not np.array_equal(first, dropped(X, rate=0.5, seed=None))
    keras.utils.set_random_seed(3)
    np.testing.assert_array_equal(first, dropped(X, rate=0.5, seed=None))


@pytest.mark.parametrize("training", [False, None])
def test_nothing_is_dropped_in_inference(training):
    np.testing.assert_array_equal(dropped(X, rate=0.9, training=training), X)


def test_the_mask_repeats_along_axes_of_extent_one():
    x = np.ones((6, 5, 4), np.float32)
    result = dropped(x, rate=0.5, noise_shape=(None, 1, np.int64(4)))
    assert (result == result[:, :1]).all()
    assert set(np.unique(result)) == {0, 2}


def test_the_state_goes_in_and_out_of_pure_calls():
    layer = layers.Dropout(0.5, seed=1)
    layer.build(X.shape)
    state = [v.value for v in layer.non_trainable_variables]

    @jax.jit
    def call(state: Any) -> Any:
        return layer.stateless_call([], state, X, training=True)

    first, after = call(state)
    np.testing.assert_array_equal(first, call(state)[0])
    second, _ = call(after)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, layer(X, training=True))
    np.testing.assert_array_equal(second, layer(X, training=True))


def test_gradients_are_those_of_the_mask():
    def total(x: Any) -> Any:
        return layers.Dropout(0.5, seed=1)(x, training=True).sum()

    np.testing.assert_array_equal(jax.grad(total)(X), 2 * (dropped(X, rate=0.5, seed=1) != 0))


def test_a_rate_of_zero_has_no_state():
    assert not layers.Dropout(0.0).variables
    assert len(layers.Dropout(0.1).variables) == 1


@pytest.mark.fact("dropout_rng.rate_range")
@pytest.mark.parametrize("rate", [1, -0.1, 1.5])
def test_rates_outside_are_refused(rate):
    with pytest.raises(OperatorError, match=r"must be at least 0 and less than 1"):
        layers.Dropout(rate)


def test_other_arguments_that_cannot_be_are_refused():
    with pytest.raises(ConfigTypeError, match="the rate of dropout is 'a'"):
        layers.Dropout("a")
    for seed in (1.5, [1, 2, 3], "a"):
        with pytest.raises(OperatorError, match="the seed of"):
            layers.Dropout(0.5, seed=seed)
    with pytest.raises(OperatorError, match="must equal the rank of x"):
        dropped(np.ones((2, 3, 4), np.float32), rate=0.5, noise_shape=[1])
