from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax import pipelining_ops
from lowering.fusion import merge_iterations
from lowering.fusion.merge_iterations import MergedIterations, match_accumulating_iteration
from lowering.jaxprs import trace_flat

WEIGHTS = np.arange(9, dtype=np.float32).reshape(3, 3) / 9
COUNT, UPDATES = 8, 2


@pytest.fixture(autouse=True)
def merging_always_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_iterations, "MINIMUM_BYTES", 0)
    monkeypatch.setattr(merge_iterations, "MAXIMUM_OPERATIONS_PER_BYTE", float("inf"))


# What one iteration does with its sum, its other variable and its element; and what it sends.
BODIES: dict[str, Callable[..., tuple[Any, Any, Any]]] = {
    "sums": lambda total, other, x: (total + x.T @ (x @ WEIGHTS), other, x.sum()),
    "scaled": lambda total, other, x: (0.5 * (x.T @ x) + total, other, x[0, 0]),
    "last": lambda total, other, x: (total + (x.T @ x).T, x[0, 0], x[1, 1]),
    "constant": lambda total, other, x: (total + 2.0, other, x[1, 1]),
    "sum_is_sent": lambda total, other, x: (total + x.T @ x, other, (total + x.T @ x)[0, 0]),
    "sum_is_read": lambda total, other, x: (total + x.T @ x, total[0, 0], x.sum()),
    "average": lambda total, other, x: (total + x.T @ x, 0.5 * other + x.sum(), x.sum()),
    "minimum": lambda total, other, x: (total + x.T @ x, jnp.minimum(other, x.sum()), other),
    "not_a_sum": lambda total, other, x: (total * 0.5 + x.T @ x, other, x.sum()),
    "both": lambda total, other, x: (total + total, other + x.sum(), x.sum()),
}
MERGED = ("sums", "scaled", "last", "constant")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", BODIES)
def test_only_what_iterations_do_not_need_of_one_another_is_merged(name: str) -> None:
    random = np.random.default_rng(0)
    xs = random.normal(size=(4, 2, 3)).astype(np.float32)
    avals = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((3, 3), (), (2, 3))]
    found = match_accumulating_iteration(trace_flat(BODIES[name], avals), 2, 1)
    assert (found is not None) == (name in MERGED)
    if found is None:
        return
    total, other = jnp.asarray(WEIGHTS), jnp.float32(1)
    merged = MergedIterations(found, 4)(total, other, xs)
    sent: list[Any] = []
    for x in xs:
        total, other, value = BODIES[name](total, other, x)
        sent.append(value)
    for one, expected in zip(merged, (total, other, jnp.stack(sent)), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)


def elements(count: int | None = None, pause: float = 0.0) -> Callable[[], Iterator[Any]]:
    def data() -> Iterator[Any]:
        for number in itertools.count() if count is None else range(count):
            time.sleep(pause)
            yield np.float32([[number % 5, 1, -1], [2, number % 3, 0.5]])

    return data


def run(engine: str, data: Any, prefetch_depth: int | None = None) -> tuple[Any, Any, str]:
    """Results (or the error's), what was sent, and the text of the program that ran."""
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data, prefetch_depth=prefetch_depth)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def train(weights: Any) -> Any:
        return pipelining_ops.pipeline(
            [lambda w, x: x @ w[0], lambda w, x: ((x @ w[1]) ** 2).mean()],
            COUNT,
            repeat_count=UPDATES,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=lambda loss: pipelining_ops.OptimizerFunctionOutput(
                optax.sgd(0.01), loss
            ),
            device_mapping=[0, 0],
            variables=weights,
        )

    compiled: Any = ipu.compile(train, engine=engine)
    try:
        results = compiled([WEIGHTS, WEIGHTS.T])[0]
    except ipu.errors.OutOfRangeError as error:
        results = [*error.carried[0], error.requested, error.available]
    text = compiled.lower([WEIGHTS, WEIGHTS.T]).compile().as_text()
    return results, outfeed.dequeue()[0], text.replace(infeed.name, "infeed")


def assert_same(one: Any, other: Any) -> None:
    for a, b in zip(one[0], other[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    np.testing.assert_allclose(one[1], other[1], rtol=1e-5)


@pytest.mark.exhaustive
def test_merged_pipelines_give_the_numbers_of_replay() -> None:
    fused = run("fused", elements())
    assert "infeed x8" in fused[2]
    assert_same(fused, run("replay", elements()))


@pytest.mark.exhaustive
def test_elements_that_come_late_are_taken_one_by_one() -> None:
    fused = run("fused", elements(COUNT * UPDATES, pause=0.03))
    assert_same(fused, run("replay", elements()))


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [3, 8, 13])
def test_a_data_set_that_ends_within_a_block(count: int) -> None:
    fused = run("fused", elements(count))
    assert fused[0][2:] == [COUNT * UPDATES, count]
    assert len(fused[1]) == count
    sequential = run("replay", elements(count))
    for a, b in zip(fused[0], sequential[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.exhaustive
def test_no_more_is_merged_than_a_queue_may_hold() -> None:
    assert "infeed x2" in run("fused", elements(), prefetch_depth=2)[2]
