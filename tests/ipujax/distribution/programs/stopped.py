"""The last of the instances is stopped, alone or with its follower, while the others wait."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
from jax.experimental import multihost_utils

import ipujax as ipu

ipu.popdist.init()
is_last = ipu.popdist.getInstanceIndex() == ipu.popdist.getNumInstances() - 1
multihost_utils.process_allgather(np.float32(1))
print("met", flush=True)
if is_last:
    if sys.argv[1] == "both":
        os.kill(os.getppid(), signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)
multihost_utils.process_allgather(np.float32(1))
print("done")
