"""Kills processes while orbax writes their checkpoints, and looks at what is there then.

python -m tests.ipujax.checkpoints.killed_orbax --kills 200

A line of JSON tells how many kills left something that is no whole checkpoint, at how many one was
being written, and how many unfinished ones are there after one more. Whoever writes or reads is
forked from a process that has done neither, since orbax makes threads.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ipujax import checkpoint

UNFINISHED = ".ipujax-*"
SECONDS = 1.0  # of a writer's life, at most


def save(folder: Path, step: int) -> None:
    checkpoint.save(folder, step, {"numbers": np.full(100_000, step), "step": step}, keep=2)


def save_again_and_again(folder: Path, ready: int) -> None:
    save(folder, 0)
    os.write(ready, b"!")
    while True:
        save(folder, 1)
        save(folder, 0)


def look(folder: Path) -> None:
    """Fails unless all steps are as they were saved, and the first one is there."""
    for step in {0, checkpoint.latest_step(folder)}:
        found = checkpoint.restore(folder, step=step)
        if (found["numbers"] != step).any() or found["step"] != step:
            raise ValueError(f"step {step} holds others")


def forked(work: Callable[[], None]) -> int:
    """A process that does something; its exit status says whether it could."""
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def succeeds(work: Callable[[], None]) -> bool:
    return os.waitpid(forked(work), 0)[1] == 0


def kill_while_saving(kills: int, moments: random.Random) -> dict[str, int]:
    """Kills as often, in one folder; returns the counts."""
    halves = unfinished = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for _ in range(kills):
            reader, ready = os.pipe()
            child = forked(lambda ready=ready: save_again_and_again(folder, ready))
            os.close(ready)
            if os.read(reader, 1) != b"!":
                raise RuntimeError("the writer ended early")
            time.sleep(moments.uniform(0, SECONDS))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reader)
            unfinished += bool(list(folder.glob(UNFINISHED)))
            halves += not succeeds(lambda: look(folder))
        saved = succeeds(lambda: save(folder, 0))
        left = len(list(folder.glob(UNFINISHED))) + (not saved)
    return {"kills": kills, "halves": halves, "unfinished": unfinished, "left": left}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    arguments = parser.parse_args()
    importlib.import_module("orbax.checkpoint")  # once, and not in every process
    counts = kill_while_saving(arguments.kills, random.Random(arguments.seed))
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
