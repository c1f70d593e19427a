"""The last process ends in the way that the argument says, while the first waits for it."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np
from jax.experimental import multihost_utils

import ipujax as ipu

ipu.popdist.init()
is_last = ipu.popdist.getInstanceIndex() == ipu.popdist.getNumInstances() - 1
multihost_utils.process_allgather(np.float32(1))


def end(way: str) -> None:
    if way == "raise":
        raise RuntimeError("it broke")
    if way == "exit":
        try:
            sys.exit(4)
        except SystemExit as caught:  # no end, and no different from Python's own
            status = caught.code
        if status != 4:
            raise AssertionError(status)
        sys.exit(3)
    os.kill(os.getpid(), signal.Signals[way])


way = sys.argv[1]
if way == "early":
    time.sleep(0 if is_last else 2)
elif way == "late":
    time.sleep(12 if is_last else 0)
elif is_last:
    end(way)
elif len(sys.argv) > 2:
    time.sleep(60)  # computes alone
else:
    multihost_utils.process_allgather(np.float32(1))
print("done", ipu.popdist.getInstanceIndex())
