"""A training that saves its state after every run, and begins where the last one has saved."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from shared import DATA, configured

import ipujax as ipu

STEPS, STEPS_EACH = 40, 2
directory = sys.argv[1]
configured(ipus=1)
index, total = ipu.popdist.getInstanceIndex(), ipu.popdist.getNumTotalReplicas()
zeros = np.zeros((8, 8), np.float32)
state: dict[str, Any] = {"weights": zeros, "momentum": zeros, "large": np.zeros(2**20, np.float32)}
done = ipu.checkpoint.latest_step(directory) or 0
if done:
    state = ipu.checkpoint.restore(directory, like=state)
print(f"begins at {done}", file=sys.stderr, flush=True)


def elements() -> Iterator[np.ndarray]:
    for step in range(done, STEPS):
        yield DATA[(total * step + index) % len(DATA)]


infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(elements)


def step(weights: jax.Array, momentum: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    gradient = jax.grad(lambda w: ((jnp.tanh(x @ w) - x[:, ::-1]) ** 2).mean())(weights)
    momentum = 0.9 * momentum + ipu.cross_replica_ops.cross_replica_sum(gradient) / total
    return weights - 0.5 * momentum, momentum


@ipu.compile
def train(weights: jax.Array, momentum: jax.Array) -> Any:
    return ipu.loops.repeat(STEPS_EACH, step, [weights, momentum], infeed_queue=infeed)


for number in range(done + STEPS_EACH, STEPS + 1, STEPS_EACH):
    state["weights"], state["momentum"] = train(state["weights"], state["momentum"])
    ipu.checkpoint.save(directory, number, state, keep=2)
print(json.dumps(np.asarray(state["weights"]).tolist()), flush=True)
