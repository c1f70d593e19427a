"""One of the processes of `benchmarks.processes`: two of four stages of a pipeline, or all.

python -m benchmarks.processes_pipeline TIME MODEL
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any

if hasattr(os, "sched_setaffinity"):  # before XLA counts the cores
    CORES = sorted(os.sched_getaffinity(0))
    COUNT = int(os.environ.get("POPDIST_NUM_INSTANCES", "1"))
    INDEX = int(os.environ.get("POPDIST_INSTANCE_INDEX", "0"))
    os.sched_setaffinity(0, CORES if COUNT == 1 else {CORES[INDEX % len(CORES)]})

import jax
import optax

import ipujax as ipu
from benchmarks.pipeline_models import LEARNING_RATE, MODELS, STAGES
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline

UPDATES, CALLS = 8, 5


def main(name: str) -> None:
    """Trains; prints the seconds of a step: of all micro-batches, and the update."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = STAGES
    config.configure_ipu_system()
    model = MODELS[name]()
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(model.data * (UPDATES * (1 + CALLS)))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @ipu.compile(engine="replay", donate_argnums=0, gather=False)
    def train(parameters: Any) -> Any:
        return pipeline(
            model.stages(),
            len(model.data),
            repeat_count=UPDATES,
            variables=parameters,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=lambda loss, *_: OptimizerFunctionOutput(
                optax.sgd(LEARNING_RATE), loss
            ),
            pipeline_schedule=PipelineSchedule.Interleaved,
        )

    parameters = jax.tree.map(jax.numpy.asarray, model.parameters)
    taken: list[float] = []
    for _ in range(1 + CALLS):
        clock = time.perf_counter()
        parameters, *_ = jax.block_until_ready(train(parameters))
        outfeed.dequeue()
        taken.append((time.perf_counter() - clock) / UPDATES)
    print(json.dumps({"step": statistics.median(taken[1:])}), flush=True)


if __name__ == "__main__":
    main(sys.argv[2])
