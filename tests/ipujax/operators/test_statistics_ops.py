"""Histograms against NumPy and the facts."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import ConfigTypeError, OperatorError
from ipujax.statistics_ops import fixed_width_bins, histogram, histogram_update

TENTHS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
SIGNED = [-0.1, 0.2, -0.3, 0.4, -0.5, 0.6, -0.7, 0.8, -0.9, 1.0]
QUARTERS = [0.25, 0.5, 0.75, 1.0]
HALVES = [np.float16, np.float32]

COMPILED = ipu.compile(histogram, static_argnums=2)


@pytest.mark.fact("statistics.hist_a")
@pytest.mark.parametrize("dtype", HALVES)
def test_tenths(dtype: Any) -> None:
    out = COMPILED(np.array(TENTHS, dtype), np.array(QUARTERS, dtype), False)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, [2, 2, 3, 2, 1])


@pytest.mark.fact("statistics.hist_b")
@pytest.mark.parametrize("dtype", HALVES)
def test_whole_numbers(dtype: Any) -> None:
    out = histogram(np.array([0, 0, 0, 1, 2, 5, 6, 6, 0, 10], dtype), [5, 10])
    np.testing.assert_array_equal(out, [6, 3, 1])


def test_all_values_in_the_middle_bin() -> None:
    for dtype in HALVES:
        out = COMPILED(np.zeros(3, dtype), np.array([-1, 1], dtype), False)
        np.testing.assert_array_equal(out, [0, 3, 0])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("inputs", "magnitudes"), [(TENTHS, False), (SIGNED, True)])
def test_two_updates_count_three_times(dtype: Any, inputs: Any, magnitudes: bool) -> None:
    def model(x: Any, levels: Any) -> Any:
        hist = histogram(x, levels, magnitudes)
        hist = histogram_update(hist, x, levels, magnitudes)
        return histogram_update(hist, x, levels, magnitudes)

    out = ipu.compile(model)(np.array(inputs, dtype), np.array(QUARTERS, dtype))
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, [6, 6, 9, 6, 3])


@pytest.mark.fact("statistics.hist_d")
@pytest.mark.parametrize("dtype", HALVES)
def test_magnitudes(dtype: Any) -> None:
    out = COMPILED(np.array(SIGNED, dtype), np.array(QUARTERS, dtype), True)
    np.testing.assert_array_equal(out, [2, 2, 3, 2, 1])


VALUES = st.lists(st.integers(-6, 6), max_size=12)


@pytest.mark.exhaustive
@pytest.mark.fact("statistics.hist_bins")
@hypothesis.given(VALUES, st.lists(st.integers(-4, 4), min_size=1, max_size=3), st.booleans())
@hypothesis.settings(max_examples=10)
def test_a_value_equal_to_a_level_goes_up(values: Any, levels: Any, magnitudes: bool) -> None:
    x, levels = np.array(values, np.float32), np.sort(np.array(levels, np.float32))
    bins = np.searchsorted(levels, np.abs(x) if magnitudes else x, side="right")
    expected = np.bincount(bins, minlength=len(levels) + 1)
    out = histogram(x, levels, magnitudes)
    np.testing.assert_array_equal(out, expected)
    again = histogram_update(out, x, levels, magnitudes)
    np.testing.assert_array_equal(again, 2 * expected)


def test_values_that_are_no_numbers_count_as_below() -> None:
    out = histogram(np.array([np.nan, -np.inf, np.inf, 1], np.float32), [0.0, 2.0])
    np.testing.assert_array_equal(out, [2, 1, 1])


def test_counts_are_exact_beyond_float32() -> None:
    # 2**24 + 1 ones would stop at 2**24 if they were added one by one as float32.
    out = jax.jit(histogram)(np.ones(2**24 + 3, np.float16), np.array([0.5], np.float16))
    np.testing.assert_array_equal(out, np.array([0, 2**24 + 4], np.float32))


@pytest.mark.parametrize("dtype", HALVES)
def test_fixed_width_bins(dtype: Any) -> None:
    x = np.random.default_rng(0).normal(size=50).astype(dtype)
    out = ipu.compile(fixed_width_bins, static_argnums=1)(x, 7)
    assert out.dtype == dtype
    np.testing.assert_allclose(out, np.linspace(x.min(), x.max(), 7), atol=2e-3)
    np.testing.assert_array_equal(fixed_width_bins(x, 1), [x.min()])


def test_vmap_and_loops() -> None:
    x = np.random.default_rng(0).normal(size=(4, 50)).astype(np.float32)
    levels = np.array([-1, 0, 1], np.float32)
    each = jax.vmap(lambda x: histogram(x, levels))(x)
    np.testing.assert_array_equal(each, [histogram(row, levels) for row in x])

    def body(i: Any, hist: Any) -> Any:
        return i + 1, histogram_update(hist, jax.numpy.asarray(x)[i], levels)

    def model() -> Any:
        return ipu.loops.repeat(4, body, [0, np.zeros(4, np.float32)])[1]

    np.testing.assert_array_equal(ipu.compile(model)(), histogram(x.reshape(-1), levels))


def test_costs() -> None:
    x, levels = np.ones(100_000, np.float32), np.linspace(-1, 1, 100, dtype=np.float32)
    report = ipu.compile(lambda x: histogram(x, levels)).lower(x).compile().report()
    assert report.default_share < 0.1
    assert report.memory.tile_peak_bytes.max() < 20_000  # not values times levels


# --- bad input ------------------------------------------------------------------------------------

X, L = np.ones(4, np.float32), np.ones(2, np.float32)
H = np.ones(3, np.float32)


@pytest.mark.fact("statistics.hist_errors")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: histogram(X.astype(np.int32), L), "inputs of histogram is int32"),
        (lambda: histogram(X, L.astype(np.int32)), "levels of histogram is int32"),
        (lambda: histogram(X[None], L), "give an array of rank 1"),
        (lambda: histogram(X, L[None]), "give an array of rank 1"),
        (lambda: histogram_update(H, X.astype(np.int32), L), "inputs of histogram_update"),
        (lambda: histogram_update(H, X, L.astype(np.int32)), "levels of histogram_update"),
        (lambda: histogram_update(H, X[None], L), "give an array of rank 1"),
        (lambda: histogram_update(H, X, L[None]), "give an array of rank 1"),
        (lambda: histogram_update(H.astype(np.float16), X, L), "hist of histogram_update"),
        (lambda: histogram_update(H[None], X, L), "hist of histogram_update"),
        (lambda: histogram_update(H, X, H), "one bin more than levels"),
        (lambda: histogram(X, L.astype(np.float16)), "cast the levels"),
        (lambda: histogram(X, np.array([2, 1], np.float32)), "do not ascend"),
        (lambda: histogram(X, [0, np.nan]), "do not ascend"),
        (lambda: jax.jit(lambda x: histogram(x, [2, 1]))(X), "do not ascend"),
        (lambda: histogram(X, L[:0]), "no levels"),
        (lambda: fixed_width_bins(X, 0), "at least one"),
        (lambda: fixed_width_bins(X[:0], 3), "at least one"),
        (lambda: fixed_width_bins(X.astype(np.int32), 3), "inputs of fixed_width_bins"),
        (lambda: fixed_width_bins(X[None], 3), "give an array of rank 1"),
    ],
)
def test_bad_values(call: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message) as info:
        call()
    assert isinstance(info.value, ValueError)


def test_bad_types() -> None:
    with pytest.raises(ConfigTypeError, match="n_bins"):
        fixed_width_bins(X, 2.0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigTypeError, match="absolute_of_input"):
        histogram(X, L, None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigTypeError, match="the inputs of histogram cannot be an array"):
        histogram(None, L)
    with pytest.raises(ConfigTypeError, match="the levels of histogram cannot be an array"):
        histogram(X, [0, [1]])
    with pytest.raises(ConfigTypeError, match="the hist of histogram_update cannot be an array"):
        histogram_update({}, X, L)
