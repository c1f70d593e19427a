"""A network of four stages, trained twice by the pipeline of a schedule that is named."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from shared import DATA, tell

import ipujax as ipu
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline
from tests.between import between

REPLICAS = ipu.popdist.getNumTotalReplicas()
config = ipu.config.IPUConfig()
config.auto_select_ipus = 4 * REPLICAS
config.configure_ipu_system()
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(list(DATA))
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
random = np.random.default_rng(2)
variables = {name: random.normal(size=(8, 8)).astype(np.float32) / 3 for name in "abcd"}

schedule = getattr(PipelineSchedule, sys.argv[1], sys.argv[1])
if schedule == "between":
    schedule = between


def hidden(name: str) -> Any:
    def stage(weights: Any, hidden: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.tanh(hidden @ weights[name]), x

    return stage


def first(weights: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return hidden("a")(weights, x, x)


def last(weights: Any, hidden: jax.Array, x: jax.Array) -> jax.Array:
    return ((hidden @ weights["d"] - x) ** 2).mean()


@ipu.compile(engine="replay")
def train(weights: Any) -> Any:
    return pipeline(
        [first, hidden("b"), hidden("c"), last],
        8,
        repeat_count=3,
        variables=weights,
        infeed_queue=infeed,
        outfeed_queue=outfeed,
        optimizer_function=lambda loss, *_: OptimizerFunctionOutput(optax.adam(1e-2), loss),
        pipeline_schedule=schedule,
    )


trained, _ = train(variables)
tell(train(trained), outfeed.dequeue())
