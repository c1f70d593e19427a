"""Threads and queues are gone once the queue and the functions that use it are."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import ipujax as ipu
from ipujax.loops import repeat
from tests.ipujax.feeding import infeed, outfeed

f32 = np.float32


def elements() -> Iterator[Any]:
    return (f32(k) for k in range(600))  # more than any program takes


def loop_of(source: Any, sink: Any) -> Callable[[Any], Any]:
    def body(total: Any, x: Any) -> Any:
        sink.enqueue(x)
        return total + x

    return lambda total: repeat(3, body, [total], source)


def run_failing(source: Any, sink: Any) -> None:
    def body(total: Any, x: Any) -> Any:
        raise KeyError("not now")

    with pytest.raises(KeyError):
        ipu.compile(lambda total: repeat(3, body, [total], source))(f32(0))


USES: dict[str, Callable[[Any, Any], Any]] = {
    "auto": lambda source, sink: ipu.compile(loop_of(source, sink))(f32(0)),
    "replay": lambda source, sink: ipu.compile(loop_of(source, sink), engine="replay")(f32(0)),
    "lowered": lambda source, sink: ipu.compile(loop_of(source, sink)).lower(f32(0)),
    "jit": lambda source, sink: jax.block_until_ready(jax.jit(loop_of(source, sink))(f32(0))),
    "peeked": lambda source, sink: source.number_of_tuple_elements,
    "failing": run_failing,
}


def held_or_threads(queues: list[weakref.ref[Any]], before: int) -> list[Any]:
    """The queues that something still holds, and all threads where there are more than before."""
    gc.collect()
    held = [queue() for queue in queues if queue() is not None]
    return held + (threading.enumerate() if threading.active_count() > before else [])


@pytest.mark.parametrize("use", USES)
def test_a_queue_that_was_used_and_dropped_leaves_no_thread(use: str, little_garbage: None) -> None:
    def use_once() -> list[weakref.ref[Any]]:
        source, sink = infeed(elements), outfeed()
        USES[use](source, sink)
        return [weakref.ref(source), weakref.ref(sink)]

    before = threading.active_count()
    queues = [queue for _ in range(3) for queue in use_once()]
    patience = time.monotonic() + 20  # XLA's threads may still be ending a program or its callbacks
    while held_or_threads(queues, before) and time.monotonic() < patience:
        time.sleep(0.01)
    assert held_or_threads(queues, before) == []


def test_a_host_embedding_that_was_used_and_dropped_is_freed(little_garbage: None) -> None:
    def use_once() -> weakref.ref[Any]:
        table = np.zeros((10, 4), f32)
        embedding = ipu.embedding_ops.create_host_embedding(
            "dropped", table.shape, f32, initializer=table
        )
        with embedding.register():
            ipu.compile(embedding.lookup)(np.int32([1, 2]))
        return weakref.ref(embedding.table)

    table = use_once()
    gc.collect()
    assert table() is None
