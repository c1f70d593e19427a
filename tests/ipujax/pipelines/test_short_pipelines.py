"""Short programs with queues: run in one call of XLA if all elements are there, or in chunks."""

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
from ipujax.engine import single_call
from ipujax.engine.single_call import SingleCall
from tests.ipujax.feeding import infeed, outfeed

WIDTH, MICRO_BATCHES, RUNS = 8, 4, 5


def numbers() -> Iterator[np.ndarray]:
    for number in itertools.count():
        yield np.full((2, WIDTH), np.sin(number), np.float32)


def first_stage(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ weights[0])


def last_stage(weights: list[jax.Array], h: jax.Array) -> jax.Array:
    return jnp.mean((h @ weights[1]) ** 2)


def build_training(
    dataset: Callable[[], Iterator[np.ndarray]], updates: int = 1, width: int = WIDTH
) -> tuple[Any, ipu.ipu_outfeed_queue.IPUOutfeedQueue]:
    source, sink = infeed(dataset), outfeed()

    def train(weights: list[jax.Array]) -> list[jax.Array]:
        weights, _ = ipu.pipelining_ops.pipeline(
            computational_stages=[first_stage, last_stage],
            gradient_accumulation_count=MICRO_BATCHES,
            repeat_count=updates,
            infeed_queue=source,
            outfeed_queue=sink,
            optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(
                optax.sgd(0.1), loss
            ),
            device_mapping=[0, 0],
            pipeline_schedule=ipu.pipelining_ops.PipelineSchedule.Sequential,
            variables=weights,
        )
        return weights

    return ipu.compile(train, engine="fused", donate_argnums=0), sink


def initial_weights(width: int = WIDTH) -> list[jax.Array]:
    return [jnp.eye(width) * 0.5, jnp.eye(width)]


def take_losses(sink: ipu.ipu_outfeed_queue.IPUOutfeedQueue) -> list[float]:
    (losses,) = sink.dequeue()
    return losses.ravel().tolist()


def expected_training(runs: int) -> tuple[list[float], list[jax.Array]]:
    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        return last_stage(weights, first_stage(weights, x))

    weights, losses, elements = initial_weights(), [], numbers()
    for _ in range(runs):
        sums = [jnp.zeros_like(w) for w in weights]
        for x in itertools.islice(elements, MICRO_BATCHES):
            value, gradients = jax.value_and_grad(loss)(weights, jnp.asarray(x))
            losses.append(float(value))
            sums = [total + g for total, g in zip(sums, gradients, strict=True)]
        weights = [w - 0.1 * total for w, total in zip(weights, sums, strict=True)]
    return losses, weights


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each try to run in one call did so."""
    tries: list[bool] = []
    run = SingleCall.run_if_ready

    def run_and_note(self: SingleCall, *args: object) -> object:
        results = run(self, *args)
        tries.append(results is not None)
        return results

    monkeypatch.setattr(SingleCall, "run_if_ready", run_and_note)
    return tries


def test_programs_of_many_equations_are_not_compiled_again_for_one_call(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[bool]
) -> None:
    monkeypatch.setattr(single_call, "FEW_EQUATIONS", 5)
    train, sink = build_training(numbers, updates=1)
    weights = initial_weights()
    for _ in range(RUNS):
        weights = train(weights)
    np.testing.assert_allclose(take_losses(sink), expected_training(RUNS)[0], rtol=1e-5)
    assert not outcomes


@pytest.mark.parametrize("updates", [1, 3])
def test_one_call_computes_what_chunks_compute(updates: int, outcomes: list[bool]) -> None:
    train, sink = build_training(numbers, updates)
    weights, losses = initial_weights(), []
    for _ in range(RUNS):
        weights = train(weights)
        losses += take_losses(sink)
    wanted_losses, wanted_weights = expected_training(RUNS * updates)
    np.testing.assert_allclose(losses, wanted_losses, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), weights, wanted_weights)
    assert not outcomes[0]  # nobody knows yet how long the loop takes
    assert any(outcomes)


def test_a_slow_data_set_loses_no_element(outcomes: list[bool]) -> None:
    def pausing() -> Iterator[np.ndarray]:
        for number, element in enumerate(numbers()):
            if number > 2 * MICRO_BATCHES:
                time.sleep(0.01)
            yield element

    train, sink = build_training(pausing)
    weights, losses = initial_weights(), []
    for _ in range(RUNS):
        weights = train(weights)
        losses += take_losses(sink)
    np.testing.assert_allclose(losses, expected_training(RUNS)[0], rtol=1e-5)
    assert not all(outcomes)


def test_a_data_set_that_ends_gives_its_last_elements(outcomes: list[bool]) -> None:
    count = 3 * MICRO_BATCHES + 2
    train, sink = build_training(lambda: itertools.islice(numbers(), count))
    weights = initial_weights()
    for _ in range(3):
        weights = train(weights)
    with pytest.raises(ipu.errors.OutOfRangeError) as caught:
        train(weights)
    assert (caught.value.requested, caught.value.available) == (MICRO_BATCHES, 2)
    assert len(take_losses(sink)) == count
    assert not outcomes[-1]


def test_an_array_given_twice_and_numpy_arrays_are_taken() -> None:
    train, sink = build_training(lambda: itertools.repeat(np.ones((2, WIDTH), np.float32)))
    for _ in range(3):
        both = jnp.eye(WIDTH)
        by_jax, by_numpy = train([both, both]), train([np.eye(WIDTH, dtype=np.float32)] * 2)
        jax.tree.map(np.testing.assert_array_equal, by_jax, by_numpy)
    assert len(take_losses(sink)) == 6 * MICRO_BATCHES


def test_parameters_and_sums_of_a_streamed_pipeline_are_not_copied() -> None:
    width = 256
    train, _ = build_training(
        lambda: itertools.repeat(np.ones((2, width), np.float32)), updates=2, width=width
    )
    executable = train.lower(initial_weights(width)).compile()
    (chunk,) = executable._machine._single_call.loop.chunk_kernels.values()
    analysis = chunk.compiled.compile_function().memory_analysis()
    size = 2 * width * width * 4
    # Nothing but one layer's gradient, or the zeros with which the sums begin.
    assert analysis.temp_size_in_bytes < 0.6 * size
    assert analysis.alias_size_in_bytes >= 2 * size
