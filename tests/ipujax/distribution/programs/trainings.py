"""Trainings in many ways: `loops` with their queues and optimizers, or `pipelines`."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from shared import configured, own_data, tell_replicas

import ipujax as ipu
from ipujax.cross_replica_optimizer import CrossReplicaOptimizer
from ipujax.gradient_accumulation_optimizer import (
    CrossReplicaGradientAccumulationOptimizer,
    CrossReplicaGradientAccumulationOptimizerV2,
)
from ipujax.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline

STEPS, BATCHES = 4, 8
WEIGHTS = {
    "in": np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32),
    "out": np.random.default_rng(2).normal(size=(16, 8)).astype(np.float32),
}

configured(ipus=2 if "pipelines" in sys.argv else 1)
index, total = ipu.replication_ops.replication_index, ipu.popdist.getNumTotalReplicas()


def first(weights: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.tanh(x @ weights["in"]), x


def last(weights: Any, hidden: jax.Array, x: jax.Array) -> jax.Array:
    return ((ipu.rand_ops.dropout(hidden, 0.25) @ weights["out"] - x) ** 2).mean()


def infeed(count: int) -> Any:
    return ipu.ipu_infeed_queue.IPUInfeedQueue(own_data(count * total))


def outfeed(mode: IPUOutfeedMode = IPUOutfeedMode.ALL) -> Any:
    return IPUOutfeedQueue(outfeed_mode=mode)


def in_pipeline(schedule: PipelineSchedule, engine: str, sharded: bool) -> Any:
    """What stages learn, and their losses."""
    fed, losses, learned = infeed(STEPS * BATCHES), outfeed(), outfeed()
    optimizer = CrossReplicaOptimizer(optax.adam(0.1))

    @ipu.compile(engine=engine)
    def train(weights: Any) -> None:
        result = pipeline(
            [first, last],
            BATCHES,
            repeat_count=STEPS,
            variables=weights,
            infeed_queue=fed,
            outfeed_queue=losses,
            optimizer_function=lambda loss, *_: OptimizerFunctionOutput(optimizer, loss),
            pipeline_schedule=schedule,
            replicated_optimizer_state_sharding=sharded,
        )
        learned.enqueue(result)

    ipu.utils.reset_ipu_seed(3)
    train(WEIGHTS)
    return losses.dequeue(), learned.dequeue()


def in_loop(optimizer: Any) -> Any:
    """The losses of all steps, those of the last, and the weights, which two runs have learned."""
    fed, losses, latest = infeed(2 * BATCHES), outfeed(), outfeed(IPUOutfeedMode.LAST)
    learned = outfeed()

    @ipu.compile
    def train(weights: Any) -> None:
        def step(weights: Any, state: Any, x: jax.Array) -> Any:
            loss, gradients = jax.value_and_grad(lambda w: last(w, *first(w, x)))(weights)
            losses.enqueue({"loss": loss, "replica": index()})
            latest.enqueue(loss)
            updates, state = optimizer.update(gradients, state, weights)
            return optax.apply_updates(weights, updates), state

        state = optimizer.init(weights)
        weights, _ = ipu.loops.repeat(BATCHES, step, [weights, state], fed)
        learned.enqueue(weights)

    ipu.utils.reset_ipu_seed(3)
    for _ in range(2):
        train(WEIGHTS)
    return losses.dequeue(), learned.dequeue(), latest.dequeue()[np.newaxis]


def while_it_pays() -> Any:
    """Elements, taken as long as all replicas together want more, and where a condition is met."""
    fed, sent = infeed(2 * BATCHES), outfeed()

    @ipu.compile
    def take() -> None:
        def wants(sum_: jax.Array) -> jax.Array:
            return ipu.cross_replica_ops.cross_replica_sum(sum_) < 40

        def body(sum_: jax.Array, x: jax.Array) -> jax.Array:
            shared = ipu.cross_replica_ops.cross_replica_mean(sum_)
            jax.lax.cond(shared > 4, lambda: sent.enqueue(sum_), lambda: None)
            return sum_ + jnp.abs(x).sum() / 8

        ipu.loops.while_loop(wants, body, [jnp.float32(0)], fed)

    take()
    return sent.dequeue()


def pipelines() -> Any:
    kinds = PipelineSchedule.Grouped, PipelineSchedule.Interleaved, PipelineSchedule.Sequential
    return {
        f"{kind} {engine}": in_pipeline(kind, engine, sharded=engine == "replay")
        for kind, engine in itertools.product(kinds, ("fused", "replay"))
    }


def loops() -> Any:
    descent = optax.sgd(0.1, momentum=0.9)
    return {
        "plain": in_loop(CrossReplicaOptimizer(descent)),
        "accumulated": in_loop(CrossReplicaGradientAccumulationOptimizerV2(descent, 4)),
        "accumulated under a condition": in_loop(
            CrossReplicaGradientAccumulationOptimizer(optax.sgd(0.1), 4)
        ),
        "as long as it pays": while_it_pays(),
    }


tell_replicas(pipelines() if "pipelines" in sys.argv else loops())
