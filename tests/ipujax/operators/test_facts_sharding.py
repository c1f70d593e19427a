"""Conformance facts about shards together with replicas."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.cross_replica_ops import cross_replica_sum
from ipujax.loops import repeat
from ipujax.replication_ops import replication_index
from ipujax.scopes import ipu_shard
from tests.conftest import RunWithDevices
from tests.ipujax.feeding import compilations, configure, incr, infeed, outfeed

ENGINES = pytest.mark.parametrize("engine", ["fused", "replay"])


@pytest.mark.fact("sharding.fwd", "sharding.one_compile")
@ENGINES
def test_two_shards_and_two_replicas(engine: str) -> None:
    configure(4)
    source, sink = infeed(incr(3, (2,))), outfeed()

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        with ipu_shard(0):
            z = v + x
            y = x * x
        with ipu_shard(1):
            z = cross_replica_sum(z) + cross_replica_sum(y)
            sink.enqueue(z)
        return z

    run = ipu.compile(lambda v: repeat(2, body, [v], source), engine=engine)
    with ipu.events.record() as trace:
        result = run(np.zeros(2, np.float32))
    np.testing.assert_array_equal(result, [10, 10])
    sent = sink.dequeue()
    assert sent.shape == (2, 2, 2)
    np.testing.assert_array_equal(sent[:, 0, 0], [2, 10])
    np.testing.assert_array_equal(sent[:, 0], sent[:, 1])
    assert compilations(trace) == 1


def convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)


def loss_of(parameters: Any, data: jax.Array, label: jax.Array) -> jax.Array:
    with ipu_shard(0):
        x = convolution(data, parameters["first"])
    with ipu_shard(1):
        x = convolution(x, parameters["second"])
        logits = jnp.mean(x, axis=(1, 2))
        return optax.softmax_cross_entropy(logits, label).mean()


def average(gradient: jax.Array) -> jax.Array:
    return cross_replica_sum(gradient) / cross_replica_sum(jnp.float32(1))


def dual_incr() -> Any:
    """Images and labels full of 0, 1, 2, 0, ..."""
    images, labels = incr(3, (1, 32, 32, 4)), incr(3, (1, 8))
    return lambda: zip(images(), labels(), strict=True)


@pytest.mark.exhaustive
@pytest.mark.fact("sharding.train", "sharding.one_compile")
@ENGINES
def test_training_on_two_shards_and_two_replicas(engine: str) -> None:
    configure(4)
    source, optimizer = infeed(dual_incr()), optax.sgd(1e-6)

    def body(loss: jax.Array, parameters: Any, state: Any, data: Any, label: Any) -> Any:
        own, gradients = jax.value_and_grad(loss_of)(parameters, data, label)
        updates, state = optimizer.update(jax.tree.map(average, gradients), state)
        return loss + cross_replica_sum(own), optax.apply_updates(parameters, updates), state

    parameters = {"first": jnp.ones((3, 3, 4, 8)), "second": jnp.ones((1, 1, 8, 8))}
    state = optimizer.init(parameters)
    run = ipu.compile(lambda *start: repeat(2, body, start, source), engine=engine)
    with ipu.events.record() as trace:
        loss, *_ = run(np.float32(0), parameters, state)
    np.testing.assert_allclose(loss, 49.906597, rtol=1e-6)
    assert compilations(trace) == 1


@pytest.mark.sampled(2)
@pytest.mark.fact("sharding.gcl_shard_sum")
@ENGINES
@pytest.mark.parametrize("replicas", [1, 2, 4, 8])
def test_sum_over_replicas_on_another_shard(replicas: int, engine: str) -> None:
    configure(2 * replicas)

    @ipu.compile(engine=engine)
    def run(x: jax.Array) -> jax.Array:
        with ipu_shard(0):
            y = x + replication_index()
        with ipu_shard(1):
            return cross_replica_sum(y)

    assert run(np.float32(1)) == sum(range(1, replicas + 1))


ON_FOUR_DEVICES = """
    import jax, numpy as np
    from tests.ipujax.operators import test_facts_sharding as facts

    assert len(jax.devices()) == 4
    for engine in ("fused", "replay"):
        facts.test_two_shards_and_two_replicas(engine)
        facts.test_training_on_two_shards_and_two_replicas(engine)
        facts.test_sum_over_replicas_on_another_shard(2, engine)
    print("equal")
"""


@pytest.mark.exhaustive
@pytest.mark.fact("sharding.fwd", "sharding.train", "sharding.gcl_shard_sum")
def test_the_same_on_four_devices(run_with_devices: RunWithDevices) -> None:
    assert run_with_devices(4, ON_FOUR_DEVICES) == "equal\n"
