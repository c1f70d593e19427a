"""Prints the peak of this process, in bytes, after one update of a large model on one CPU device.

`python -m benchmarks.update_memory pipeline | streamed | replayed | jit`: all accumulate the
gradients of the same micro-batches, and donate the parameters; `streamed` and `replayed` take them
from an infeed, on the engines `fused` and `replay`. `plain | plain_jit` do one update of the whole
batch: `plain` on the engine `replay`, with the layers on four IPUs.
"""

from __future__ import annotations

import functools
import itertools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ipujax as ipu

LAYERS, WIDTH, STAGES, MICRO_BATCHES = 8, 8192, 4, 4  # 2 GB of float32
_STREAMED = {"streamed": "fused", "replayed": "replay"}  # engines


def _loss(parameters: Any, x: Any) -> Any:
    for weights in parameters:
        x = jnp.tanh(x @ weights)
    return jnp.mean(x**2)


def _scanned_gradients(parameters: Any, batch: Any) -> Any:
    def accumulate(total: Any, x: Any) -> Any:
        return jax.tree.map(jnp.add, total, jax.value_and_grad(_loss)(parameters, x)), None

    zeros = (jnp.float32(0), jax.tree.map(jnp.zeros_like, parameters))
    totals, _ = jax.lax.scan(accumulate, zeros, batch.reshape(MICRO_BATCHES, -1, WIDTH))
    return jax.tree.map(lambda total: total / MICRO_BATCHES, totals)


def _build_step(kind: str) -> Any:
    staged = ipu.pipelining_ops.value_and_grad(_loss, micro_batches=MICRO_BATCHES, stages=STAGES)
    grad_fn = staged if kind == "pipeline" else _scanned_gradients

    def step(parameters: Any, batch: Any) -> Any:
        loss, gradients = grad_fn(parameters, batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients), loss

    if kind == "pipeline":
        return ipu.compile(step, donate_argnums=0)
    return jax.jit(step, donate_argnums=0)


def _build_plain_step(kind: str) -> Any:
    def loss(parameters: Any, x: Any) -> Any:
        for number, weights in enumerate(parameters):
            with ipu.scopes.ipu_shard(number * STAGES // LAYERS):
                x = jnp.tanh(x @ weights)
        return jnp.mean(x**2)

    def step(parameters: Any, batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(parameters, batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients), value

    if kind == "plain_jit":
        return jax.jit(step, donate_argnums=0)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = STAGES
    config.configure_ipu_system()
    return ipu.compile(step, engine="replay", donate_argnums=0)


def _build_streamed_step(engine: str) -> Any:
    element = np.ones((4, WIDTH), np.float32)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(itertools.repeat(element))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    in_stage = LAYERS // STAGES

    def stage(number: int, parameters: Any, x: Any) -> Any:
        for weights in parameters[number * in_stage : (number + 1) * in_stage]:
            x = jnp.tanh(x @ weights)
        return jnp.mean(x**2) if number == STAGES - 1 else x

    def optimizer_function(loss: Any) -> Any:
        return ipu.pipelining_ops.OptimizerFunctionOutput(optax.sgd(0.1 / MICRO_BATCHES), loss)

    def step(parameters: Any) -> Any:
        return ipu.pipelining_ops.pipeline(
            computational_stages=[functools.partial(stage, number) for number in range(STAGES)],
            gradient_accumulation_count=MICRO_BATCHES,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=optimizer_function,
            device_mapping=[0] * STAGES,
            pipeline_schedule=ipu.pipelining_ops.PipelineSchedule.Sequential,
            variables=parameters,
        )

    return ipu.compile(step, engine=engine, donate_argnums=0)


def _print_peak(kind: str) -> None:
    parameters = [jnp.full((WIDTH, WIDTH), 1 / WIDTH) for _ in range(LAYERS)]
    if kind in _STREAMED:
        jax.block_until_ready(_build_streamed_step(_STREAMED[kind])(parameters))
    else:
        batch = jnp.ones((4 * MICRO_BATCHES, WIDTH))
        build = _build_plain_step if kind.startswith("plain") else _build_step
        jax.block_until_ready(build(kind)(parameters, batch))
    with open("/proc/self/status") as status:
        print(int(status.read().split("VmHWM:")[1].split()[0]) << 10)


if __name__ == "__main__":
    _print_peak(sys.argv[1])
