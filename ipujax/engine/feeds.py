"""The queues of one run: elements fetched ahead of the loop, results collected behind it."""

from __future__ import annotations

import collections
import dataclasses as dc
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from ipujax.errors import OutOfRangeError


@dc.dataclass(frozen=True)
class Block:
    """Consecutive elements of an infeed, stacked.

    Attributes:
      rows: one array per leaf, `[capacity * replicas, *shape]`, element after element.
      leaves: the same memory as `[capacity, (replicas,) *shape]`; only the first `count` entries
        are meant.
      count: how many iterations there is data for.
      error: why there are fewer than were asked for; raised once these are used up.
    """

    rows: list[np.ndarray]
    leaves: list[np.ndarray]
    count: int
    error: BaseException | None


class Feeder:
    """Reads an infeed ahead of one loop, in a thread of its own, never further than the loop."""

    def __init__(self, queue: Any, replicas: int):
        self._queue, self._replicas = queue, replicas
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"ipujax-{queue.name}")
        self._pending: collections.deque[Future[Block]] = collections.deque()
        self._remainder: tuple[Block, int] | None = None

    def request(self, count: int, capacity: int) -> None:
        """Starts to fetch `count` iterations' elements into arrays that would hold `capacity`."""
        self._pending.append(self._thread.submit(self._fetch, count, capacity))

    def take(self) -> Block:
        """The oldest block that was requested; waits for it."""
        return self._pending.popleft().result()

    def _fetch(self, count: int, capacity: int) -> Block:
        replicas = self._replicas
        rows = [np.empty((capacity * replicas, *a.shape), a.dtype) for a in self._queue.avals]
        there, error = self._queue.fill(rows, count * replicas)
        complete = there // replicas
        self._queue.give_back(rows, complete * replicas, there)
        lead = (capacity,) if replicas == 1 else (capacity, replicas)
        leaves = [row.reshape(*lead, *row.shape[1:]) for row in rows]
        return Block(rows, leaves, complete, error)

    def unread(self, block: Block, start: int) -> None:
        """Marks the iterations from `start` on of the block taken last as not used."""
        self._remainder = (block, start)

    def close(self) -> None:
        """Ends the thread; elements that were fetched and not taken go back to the queue."""
        later = [(future.result(), 0) for future in self._pending]
        self._pending.clear()
        for block, start in reversed([self._remainder, *later] if self._remainder else later):
            self._queue.give_back(block.rows, start * self._replicas, block.count * self._replicas)
        self._thread.shutdown()


def exhausted(queue: Any, requested: int, available: int, error: BaseException | None) -> Exception:
    """What to raise when a data set stopped short: the user's own exception, or that it ended."""
    if isinstance(error, Exception):
        return error
    return OutOfRangeError(
        f"infeed `{queue.name}`: the loop asked for {requested} elements, but the data set ended "
        f"after {available}\n"
        "  fix:   repeat the data set (itertools.cycle, .repeat()), or ask for fewer iterations; "
        "`error.carried` holds the loop variables after the last complete iteration",
        requested=requested,
        available=available,
    )


class Collector:
    """Sends what kernels computed to an outfeed, a few steps behind so that devices keep busy."""

    def __init__(self, queue: Any, replicas: int, depth: int = 2):
        self._queue, self._replicas, self._depth = queue, replicas, depth
        self._pending: collections.deque[tuple[Any, Sequence[Any], int | None]]
        self._pending = collections.deque()

    def send(self, structure: Any, leaves: Sequence[Any], count: int | None) -> None:
        """Takes device arrays, `[(replicas,) *shape]` or, with a count, `[>= count, ...]`."""
        self._pending.append((structure, leaves, count))
        while len(self._pending) > self._depth:
            self._deliver()

    def flush(self) -> None:
        """Delivers all that is waiting."""
        while self._pending:
            self._deliver()

    def _deliver(self) -> None:
        structure, leaves, count = self._pending.popleft()
        arrays = [np.asarray(leaf) for leaf in leaves]
        if count is None:
            self._queue.collect(structure, [a[np.newaxis] for a in arrays], self._replicas)
            return
        # A view would keep the whole buffer alive for its first few entries.
        kept = [a if len(a) == count else a[:count].copy() for a in arrays]
        self._queue.collect(structure, kept, self._replicas)


class Session:
    """The queues of one run of one program.

    Attributes:
      replicas: copies of the graph.
    """

    def __init__(self, replicas: int, infeeds: Sequence[Any], outfeeds: Sequence[Any]):
        self.replicas = replicas
        self._infeeds = tuple(infeeds)
        self._collectors = {queue: Collector(queue, replicas) for queue in outfeeds}
        self._entered: list[Any] = []

    def __enter__(self) -> Session:
        for queue in (*self._infeeds, *self._collectors):
            queue.begin_run(self.replicas)
            self._entered.append(queue)
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            for collector in self._collectors.values():
                collector.flush()
        finally:
            for queue in self._entered:
                queue.end_run()

    def collector(self, queue: Any) -> Collector:
        """Where results for an outfeed go."""
        return self._collectors[queue]

    def element(self, queue: Any, count: int | None) -> list[np.ndarray]:
        """The next element of an infeed for every replica, `[(count,) (replicas,) *shape]`."""
        feeder = Feeder(queue, self.replicas)
        wanted = 1 if count is None else count
        feeder.request(wanted, wanted)
        try:
            block = feeder.take()
            if block.count < wanted:
                feeder.unread(block, 0)
                asked, there = wanted * self.replicas, block.count * self.replicas
                raise exhausted(queue, asked, there, block.error)
        finally:
            feeder.close()
        return [leaf[0] if count is None else leaf for leaf in block.leaves]
