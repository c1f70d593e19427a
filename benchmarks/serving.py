"""Requests answered one by one by a program that runs, against calls of a compiled function."""

from __future__ import annotations

import queue
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

import ipujax as ipu
from benchmarks.measure import Row, seconds

REQUESTS = 300
SHAPE = (8, 128)
DEPTHS = (1, 2, 3, 8, None)
# What a request may take more than three calls: five times from thread to thread, and a pause.
HANDED_OVER_SECONDS = 1e-3


def rows() -> list[Row]:
    """Every depth of a loop in one kernel; loops whose iterations are dispatched one by one."""
    streamed = [_row(f"repeat, prefetch_depth={depth}", _repeat, depth) for depth in DEPTHS]
    alone = [_row("while_loop", _while_loop, None), _row("repeat over 2 IPUs", _sharded, None, 2)]
    return [*streamed, *alone]


def _answer(weights: Any, x: Any) -> Any:
    return jnp.tanh(x @ weights)


def _repeat(body: Callable[..., Any], weights: Any, source: Any) -> Any:
    return ipu.loops.repeat(10**9, body, [weights], source)


def _while_loop(body: Callable[..., Any], weights: Any, source: Any) -> Any:
    return ipu.loops.while_loop(lambda w: jnp.isfinite(w[0, 0]), body, [weights], source)


def _sharded(body: Callable[..., Any], weights: Any, source: Any) -> Any:
    def on_the_second(weights: Any, x: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            x = x + 1
        with ipu.scopes.ipu_shard(1):
            return body(weights, x)

    return ipu.loops.repeat(10**9, on_the_second, [weights], source)


class Server:
    """A program that answers requests as long as a `with` lasts."""

    def __init__(self, loop: Callable[..., Any], depth: int | None):
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(self._data, prefetch_depth=depth)

        def body(weights: Any, x: Any) -> Any:
            self._outfeed.enqueue(_answer(weights, x))
            return weights

        self._run = ipu.compile(lambda weights: loop(body, weights, infeed))
        self._threads = [threading.Thread(target=work) for work in (self._serve, self._collect)]

    def _data(self) -> Iterator[Any]:
        while (request := self._requests.get()) is not None:
            yield request

    def _serve(self) -> None:
        try:
            self._run(jnp.eye(SHAPE[1]))
        except ipu.errors.OutOfRangeError:  # the last request has been answered
            pass
        finally:
            self._answers.put(None)

    def _collect(self) -> None:
        while self._threads[0].is_alive():
            for answer in self._outfeed:
                self._answers.put(answer)
            time.sleep(1e-3)  # nothing runs yet

    def __enter__(self) -> Callable[[Any], Any]:
        for thread in self._threads:
            thread.start()
        return self.ask

    def ask(self, request: Any) -> Any:
        """The answer to one request."""
        self._requests.put(request)
        return self._answers.get()

    def __exit__(self, *_: object) -> None:
        self._requests.put(None)
        for thread in self._threads:
            thread.join()


def _row(what: str, loop: Callable[..., Any], depth: int | None, ipus: int = 1) -> Row:
    ipu.config.reset_ipu_configuration()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()
    x, weights = np.ones(SHAPE, np.float32), jnp.eye(SHAPE[1])
    call = ipu.compile(_answer)
    served: list[float] = []
    called: list[float] = []
    with Server(loop, depth) as ask:
        ask(x)
        call(weights, x)
        for _ in range(REQUESTS):
            called.append(seconds(lambda: np.asarray(call(weights, x))))
            served.append(seconds(lambda: ask(x)))
    ipu.config.reset_ipu_configuration()
    allowed = 3 * statistics.median(called) + HANDED_OVER_SECONDS
    median, slow = statistics.median(served), statistics.quantiles(served, n=100)[-1]
    note = (
        f"{1e3 * median:.2f} ms (p99 {1e3 * slow:.2f}) / {1e3 * statistics.median(called):.2f} ms"
    )
    return Row(f"request to answer, {what} / 3 calls + 1 ms", median / allowed, 1.0, note)
