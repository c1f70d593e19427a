"""Training a model, 6.1: a loop on the device between an infeed and an outfeed."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np

import ipujax as ipu
from ipujax import ipu_infeed_queue, ipu_outfeed_queue, loops
from ipujax.config import IPUConfig


def main() -> tuple[Any, dict[str, np.ndarray]]:
    # The data set: a pair of equal vectors, again and again.
    x = np.ones(800, np.float32)
    ds = itertools.repeat((x, x))

    # The host side queues.
    infeed_queue = ipu_infeed_queue.IPUInfeedQueue(ds)
    outfeed_queue = ipu_outfeed_queue.IPUOutfeedQueue()

    # The device side main.
    def body(counter: jax.Array, x1: jax.Array, x2: jax.Array) -> jax.Array:
        d1 = x1 + x2
        d2 = x1 - x2
        counter += 1
        outfeed_queue.enqueue({"d1": d1, "d2": d2})
        return counter

    @ipu.compile
    def my_net() -> jax.Array:
        count = 0
        return loops.repeat(10, body, [count], infeed_queue)

    config = IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()

    infeed_queue.initializer()
    count_out = my_net()
    print("counter", count_out)

    # There is something in the outfeed once the program has run.
    result = outfeed_queue.dequeue()
    print("outfeed result", result)
    return count_out, result


if __name__ == "__main__":
    main()
