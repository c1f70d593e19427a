"""Costs by a clock: what is timed in a row, and what a piece adds to a stage by these seconds."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.pipelines import measured_costs

OVERHEAD = np.array([30e-6, 20e-6, 5e-6])  # of a call; what gradients add to it, of inputs and all


def count_pieces(parts: list[int]) -> np.ndarray:
    """Counts the pieces of each that is timed alone, then those of windows."""
    windows = [parts[first:end] for first, end in measured_costs.list_windows(parts)]
    pieces = max(parts) + 1
    return np.array([*np.eye(pieces), *(np.bincount(w, minlength=pieces) for w in windows)])


def time_functions(counts: np.ndarray, added: np.ndarray, noise: float) -> np.ndarray:
    """Returns what a clock shows: an overhead, what pieces add, and what disturbs it."""
    seconds = np.cumsum(counts @ added + OVERHEAD, axis=1)
    disturbed = np.random.default_rng(1).exponential(noise, seconds.shape) if noise else 0.0
    return seconds * (1 + disturbed)


def sum_stages(parts: list[int], added: np.ndarray) -> np.ndarray:
    """Returns the seconds of all stages of at least four segments."""
    sums = np.concatenate([np.zeros((1, added.shape[1])), np.cumsum(added[parts], axis=0)])
    pairs = itertools.combinations(range(len(sums)), 2)
    return np.array([sums[end] - sums[first] for first, end in pairs if end - first >= 4])


@pytest.mark.parametrize(
    "parts",
    [[*range(16)], [0, *[1, 2, 3] * 5, 4], [*range(60)]],
    ids=["distinct", "equal layers", "long"],
)
def test_what_pieces_add_is_known_from_windows(parts: list[int]) -> None:
    added = np.random.default_rng(0).uniform(10e-6, 400e-6, (max(parts) + 1, 3))
    counts = count_pieces(parts)
    np.testing.assert_allclose(
        measured_costs.fit_seconds(counts, time_functions(counts, added, 0.0)), added, 1e-4
    )
    seconds = time_functions(counts, added, 0.02)
    wanted = sum_stages(parts, added).sum(1)
    of_fit = sum_stages(parts, measured_costs.fit_seconds(counts, seconds)).sum(1) / wanted
    alone = np.diff(seconds[: len(added)], axis=1, prepend=0)
    of_sums = sum_stages(parts, alone).sum(1) / wanted
    assert np.abs(of_fit - 1).max() < 0.06 < np.abs(of_sums - 1).max()
    assert np.ptp(of_fit) < 0.7 * np.ptp(of_sums)  # so that stages are ranked


def test_pieces_that_were_timed_alone_keep_their_seconds() -> None:
    added = np.array([[1e-3, 2e-3, 3e-3], [4e-3, 1e-3, 0.0], [1e-5, 2e-5, 0.0]])
    found = measured_costs.fit_seconds(np.eye(3), np.cumsum(added, axis=1))
    np.testing.assert_allclose(found, added, rtol=1e-5, atol=1e-9)


def test_no_piece_adds_less_than_nothing() -> None:
    seconds = np.array([[2e-3, 1e-3, 1e-3], [1e-3, 3e-3, 2e-3], [1e-3, 3e-3, 3e-3]])
    counts = np.array([[1, 0], [0, 1], [1, 1]])
    found = measured_costs.fit_seconds(counts, seconds)
    assert found.shape == (2, 3)
    assert (found >= 0).all()


def test_no_piece_is_all_overhead() -> None:
    """Though two in a row take as long as one: a plan of parts for nothing would be none."""
    seconds = np.array([[1e-5, 2e-5], [1e-5, 2e-5], [1e-5, 2e-5]])
    counts = np.array([[1, 0], [0, 1], [1, 1]])
    assert (measured_costs.fit_seconds(counts, seconds)[:, 0] >= 5e-7).all()


def test_windows_have_each_length_once_before_they_overlap() -> None:
    assert [*measured_costs.list_windows(range(9))] == [
        (0, 2), (2, 4), (4, 6), (6, 8), (0, 4), (4, 8), (0, 8),
        (1, 3), (3, 5), (5, 7), (7, 9), (2, 6),
    ]  # fmt: skip


def test_equal_windows_are_timed_once() -> None:
    assert [*measured_costs.list_windows([0] * 400)] == [(0, 2**power) for power in range(1, 9)]
    assert [*measured_costs.list_windows([0, 1, 0, 1, 0])] == [(0, 2), (0, 4), (1, 3)]


def test_windows_leave_out_iterations_of_loops() -> None:
    assert [*measured_costs.list_windows([0, 1, None, 2, 3])] == [(0, 2), (3, 5)]
    assert not [*measured_costs.list_windows([0])]


WIDTH, ROWS = 128, 64


def loss(params: Any, x: Any) -> Any:
    for layer in params["layers"]:
        x = jnp.tanh(x @ layer)
    x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, params["stacked"])
    return jnp.mean(x**2)


def test_stages_of_layers_and_of_a_scan_have_measured_seconds() -> None:
    layer = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32)
    stacked = jax.ShapeDtypeStruct((3, WIDTH, WIDTH), jnp.float32)
    x = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)
    arguments = {"layers": [layer] * 4, "stacked": stacked}, x
    cut = {"stages": [1, 2, 3], "schedule": "one_f_one_b"}
    plan = ipu.plan(
        loss, *arguments, ipus=4, micro_batches=4, costs="measured", recompute=False,
        schedules="one_f_one_b", consider=[cut],
    )  # fmt: skip
    assert len(ipu.planning.segments(loss, *arguments)) == 7
    assert 0 < sum(stage.seconds.forward for stage in plan.stages) < 1
    assert all(stage.seconds.backward >= 0 for stage in plan.stages)
    given = next(row for row in plan.considered if row.why.startswith("given"))
    assert given.seconds is not None
    assert plan.seconds <= given.seconds
