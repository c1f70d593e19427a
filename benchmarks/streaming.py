"""What a loop with queues costs: streamed chunks, against data that is already in memory."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ipujax as ipu
from benchmarks.measure import Row, row

STEPS = 10_000
WIDTH = 152  # makes a step of about 10 us
ELEMENT = (8, 16)  # 512 bytes of float32


def rows() -> list[Row]:
    """10 000 steps of about 10 us, and the memory of ten and a hundred times as many."""
    return [*_loops(), _memory()]


def _step(state: Any, x: Any) -> Any:
    weights, total = state
    hidden = jnp.tanh(x @ weights[: ELEMENT[1]])
    hidden = jnp.tanh(hidden @ weights)
    return (weights * 0.999 + 1e-6 * hidden[:1].T @ hidden[:1], total + hidden.sum())


def _state() -> tuple[Any, Any]:
    return jnp.eye(WIDTH), jnp.float32(0)


def _loops() -> list[Row]:
    elements = [np.full(ELEMENT, i % 7, np.float32) for i in range(STEPS)]
    stacked = jnp.asarray(np.stack(elements))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def streamed() -> Any:
        restart()
        result = run(*_state())
        outfeed.dequeue()
        return jax.block_until_ready(result)

    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(elements)
    restart = infeed.initializer

    def body(weights: Any, total: Any, x: Any) -> Any:
        weights, total = _step((weights, total), x)
        outfeed.enqueue(total)
        return weights, total

    @ipu.compile
    def run(weights: Any, total: Any) -> Any:
        return ipu.loops.repeat(STEPS, body, [weights, total], infeed)

    @jax.jit
    def scan(state: Any, xs: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            state = _step(state, x)
            return state, state[1]

        return jax.lax.scan(step, state, xs)

    one = jax.jit(_step)

    def stepwise() -> Any:
        state = _state()
        totals = []
        for x in elements:
            state = one(state, x)
            totals.append(state[1])
        return jax.block_until_ready((state, totals))

    return [
        row(
            "repeat, 10 000 steps of 10 us, with queues / scan in memory",
            1.3,
            streamed,
            lambda: jax.block_until_ready(scan(_state(), stacked)),
            pairs=15,
        ),
        row(
            "repeat, 10 000 steps of 10 us, with queues / loop of jitted steps",
            0.5,
            streamed,
            stepwise,
            pairs=5,
        ),
    ]


_MEMORY = """
import itertools, sys
import jax.numpy as jnp, numpy as np
import ipujax as ipu
n = int(sys.argv[1])
element = np.ones((8, 16), np.float32)
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(itertools.repeat(element))
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(
    outfeed_mode=ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST)
def body(total, x):
    outfeed.enqueue(x)
    return total + x.sum()
run = ipu.compile(lambda total, n: ipu.loops.repeat(n, body, [total], infeed))
run(jnp.float32(0), jnp.int32(n))
# Not getrusage: its maximum begins with the memory of the process that forked this one.
status = open("/proc/self/status").read()
print(status.split("VmHWM:")[1].split()[0])
"""


def _memory() -> Row:
    def peak(steps: int) -> float:
        command = [sys.executable, "-c", _MEMORY, str(steps)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return float(done.stdout) / 1024

    small, large = peak(1_000), peak(100_000)
    note = f"{large:.0f} MiB / {small:.0f} MiB"
    return Row("peak memory of the loop, 100 000 / 1 000 steps", large / small, 1.1, note)
