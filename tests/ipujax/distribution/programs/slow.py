"""A loop on the device whose processes take turns in being late, by the seconds of the argument."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import jax
import numpy as np
from shared import configured

import ipujax as ipu

configured(ipus=1)
late = float(sys.argv[1])
index, total = ipu.popdist.getInstanceIndex(), ipu.popdist.getNumTotalReplicas()
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def elements() -> Iterator[np.float32]:
    for number in range(4):
        if number == 0 and index == 0:
            time.sleep(late)  # a data set that takes long to open
        if number == 2 and index == 1:
            time.sleep(late)  # one that is busy, or waits for data
        if number == 3 and index == 1:  # stopped from outside for a while, and then goes on
            wake = f"sleep {min(late, 5)}; kill -{signal.SIGCONT.value} {os.getpid()}"
            subprocess.Popen(["sh", "-c", wake])
            os.kill(os.getpid(), signal.SIGSTOP)
        yield np.float32(10 * index + number)


infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(elements)


def step(x: jax.Array) -> None:
    outfeed.enqueue(ipu.cross_replica_ops.cross_replica_sum(x))


@ipu.compile
def run() -> None:
    ipu.loops.repeat(4, step, [], infeed_queue=infeed)


if index == 1:
    time.sleep(late)  # a program that takes longer to build
run()
print(np.asarray(outfeed.dequeue()).ravel().tolist(), flush=True)
