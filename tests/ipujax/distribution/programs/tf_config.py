"""A worker of TensorFlow's, which `TF_CONFIG` tells of its cluster: a pipeline that all train."""

from __future__ import annotations

import sys

import numpy as np
import optax

import ipujax as ipu
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline

if "late" in sys.argv:
    import jax.numpy as jnp

    jnp.ones(3).block_until_ready()
strategy = ipu.ipu_multi_worker_strategy.IPUMultiWorkerStrategy()
worker = strategy.extended.worker
batches = [np.float32(worker + 1)] * 4
source = ipu.ipu_infeed_queue.IPUInfeedQueue(batches)
sink = ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def train(w):
    return pipeline(
        [lambda w, x: x * w, lambda w, y: y],
        4,
        infeed_queue=source,
        outfeed_queue=sink,
        variables=w,
        device_mapping=[0, 0],
        optimizer_function=lambda loss: OptimizerFunctionOutput(optax.sgd(0.1), loss),
    )


with strategy.scope():
    w, _ = strategy.run(train, [np.float32(0)])
print("RESULT", strategy.num_replicas_in_sync, worker, round(float(w), 4), flush=True)
