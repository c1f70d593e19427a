"""One of the processes of `benchmarks.processes`: a replica that is trained on its own data.

What a second process adds to a step is the sum of 12 MB of gradients. By gloo on the loopback
device that takes plain JAX some 25 ms of a core (EPYC, 2.4 GHz) in each, beside 150 ms of the step.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time

if hasattr(os, "sched_setaffinity"):  # before XLA counts the cores
    CORES = sorted(os.sched_getaffinity(0))
    INDEX = int(os.environ.get("POPDIST_INSTANCE_INDEX", "0"))
    os.sched_setaffinity(0, {CORES[INDEX % len(CORES)]})

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ipujax as ipu
from ipujax.cross_replica_optimizer import CrossReplicaOptimizer

WIDTH, LAYERS, BATCH = 1024, 3, 512
STEPS, CALLS = 8, 5


def main(begun: float) -> None:
    """Trains; prints seconds of a step, those of the core in it, and those up to the first."""
    random = np.random.default_rng(0)
    scale = 1 / np.sqrt(WIDTH)
    weights = [
        (scale * random.normal(size=(WIDTH, WIDTH))).astype(np.float32) for _ in range(LAYERS)
    ]
    batch = random.normal(size=(BATCH, WIDTH)).astype(np.float32)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue([batch] * (STEPS * (1 + CALLS)))
    optimizer = CrossReplicaOptimizer(optax.sgd(0.01))

    def loss_of(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        y = x
        for layer in weights:
            y = jnp.tanh(y @ layer)
        return ((y - x) ** 2).mean()

    def step(weights: list[jax.Array], x: jax.Array) -> list[jax.Array]:
        gradients = jax.grad(loss_of)(weights, x)
        updates, _ = optimizer.update(gradients, optimizer.init(weights))
        return optax.apply_updates(weights, updates)  # pyright: ignore[reportReturnType]

    @ipu.compile
    def train(weights: list[jax.Array]) -> list[jax.Array]:
        return ipu.loops.repeat(STEPS, step, [weights], infeed)

    clock = time.time()
    executable = train.lower(weights).compile()
    compiling = time.time() - clock
    jax.block_until_ready(executable(weights))
    first = time.time() - begun - compiling
    taken: list[float] = []
    work = time.process_time()
    for _ in range(CALLS):
        clock = time.perf_counter()
        jax.block_until_ready(executable(weights))
        taken.append((time.perf_counter() - clock) / STEPS)
    work = (time.process_time() - work) / (CALLS * STEPS)
    usual = statistics.median(taken)
    told = {"step": usual, "work": work, "start": first - (STEPS - 1) * usual}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))
