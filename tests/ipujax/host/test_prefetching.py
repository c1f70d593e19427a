"""`optimizations.prefetch_data_streams`: whether elements come while devices compute."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.pipelining_ops import pipeline
from tests.ipujax.feeding import infeed, outfeed
from tests.ipujax.reporting import configured

STEPS = 6


def ahead(prefetches: bool) -> tuple[list[int], list[float]]:
    """How many results there were when each element was asked for, and all results."""
    configured(optimizations__prefetch_data_streams=prefetches)
    sink, results, seen = outfeed(), [], []

    def elements() -> Iterator[np.float32]:
        for number in range(STEPS):
            if number:  # the first one tells what elements look like
                results.extend(sink.dequeue().tolist())
            seen.append(len(results))
            yield np.float32(number)

    def body(total: jax.Array, x: jax.Array) -> jax.Array:
        slow = jax.lax.fori_loop(0, 20, lambda _, m: jnp.tanh(m @ m), jnp.eye(300) * (1 + x))
        sink.enqueue(total + x)
        return total + x + 0 * slow.min()

    source = infeed(elements)
    run = ipu.compile(lambda: ipu.loops.repeat(STEPS, body, [jnp.float32(0)], source))
    assert run() == sum(range(STEPS))
    results.extend(sink.dequeue().tolist())
    return seen[-STEPS:], results


def test_without_it_an_element_is_asked_for_when_its_step_comes() -> None:
    (at_once, totals), (one_ahead, others) = ahead(False), ahead(True)
    assert at_once == list(range(STEPS))
    assert one_ahead != at_once
    assert max(np.subtract(at_once, one_ahead)) > 0
    assert totals == others == np.cumsum(range(STEPS)).tolist()


@pytest.mark.parametrize("prefetches", [True, False])
def test_pipelines_compute_the_same(prefetches: bool) -> None:
    configured(2, optimizations__prefetch_data_streams=prefetches)
    sink, source = outfeed(), infeed(list(np.arange(8, dtype=np.float32)))
    stages = [lambda x: x + 1, lambda x: x * 2]
    run = ipu.compile(
        lambda: pipeline(stages, 8, infeed_queue=source, outfeed_queue=sink, device_mapping=[0, 1])
    )
    run()
    np.testing.assert_array_equal(sink.dequeue(), [(np.arange(8) + 1) * 2])
