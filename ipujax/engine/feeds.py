"""The queues of one run: elements fetched ahead of the loop, results collected behind it."""

from __future__ import annotations

import collections
import contextlib
import dataclasses as dc
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from ipujax.engine.worker import Worker
from ipujax.errors import OutOfRangeError

# How long a loop waits for a whole chunk before it goes on with the elements that there are.
PATIENCE_SECONDS = 0.02
# How many elements are read at a time for a loop that takes them one by one.
AHEAD = 8
# What is read faster than this is read without the help of a thread: waking it would take about as
# long.
PROMPT_SECONDS = 0.002


@dc.dataclass
class Fetch:
    """Consecutive elements of an infeed, being stacked by the feeder's thread.

    Attributes:
      count: iterations asked for.
      rows: one array per leaf, `[capacity * replicas, *shape]`, element after element.
      filled: elements that are in `rows` by now.
      used: iterations that a kernel has been given.
      cancelled: nobody wants the rest.
      done: the thread's work; gives the data set's exception, if there was one.
    """

    count: int
    rows: list[np.ndarray]
    filled: int = 0
    used: int = 0
    cancelled: bool = False
    done: Future[BaseException | None] = dc.field(default_factory=Future[BaseException | None])


class Feeder:
    """Reads an infeed ahead of one loop, in a thread of its own, never further than the loop.

    A data set that has always been prompt is read at once, as long as the thread has no work.

    Attributes:
      each: elements that one iteration takes.
    """

    def __init__(self, queue: Any, replicas: int, each: int = 1):
        self.queue, self._replicas, self.each = queue, replicas, each
        self._worker: Worker | None = None
        self._fetches: collections.deque[Fetch] = collections.deque()

    def request(self, count: int, capacity: int) -> None:
        """Starts to fetch `count` iterations' elements into arrays that would hold `capacity`."""
        shapes = ((capacity * self._replicas, *aval.shape) for aval in self.queue.avals)
        dtypes = (aval.dtype for aval in self.queue.avals)
        fetch = Fetch(count, list(map(np.empty, shapes, dtypes)))
        is_idle = all(earlier.done.done() for earlier in self._fetches)
        self._fetches.append(fetch)
        wanted = count * self._replicas
        if is_idle and self.queue.seconds_per_element * wanted < PROMPT_SECONDS:
            fetch.done.set_result(self._fill(fetch))
        else:
            fetch.done = self._thread.submit(self._fill, fetch)

    @property
    def _thread(self) -> Worker:
        if self._worker is None:
            self._worker = Worker(f"ipujax-{self.queue.name}")
        return self._worker

    def _fill(self, fetch: Fetch) -> BaseException | None:
        start = time.perf_counter()
        try:
            return self.queue.fill(fetch, fetch.count * self._replicas)
        finally:
            self.queue.took(time.perf_counter() - start, fetch.filled)

    def wait(self, idle: Callable[[], None], patience: float = PATIENCE_SECONDS) -> int:
        """Iterations of the oldest request that can run now: all, or some after a while, or none.

        Zero means that the data set has ended; `error` says more. `idle` is called whenever
        nothing has come for `patience` seconds.
        """
        fetch = self._fetches[0]
        while not fetch.done.done():
            try:
                fetch.done.result(timeout=patience)
            except TimeoutError:
                idle()
                if self._ready(fetch):
                    break
        return self._ready(fetch)

    def _ready(self, fetch: Fetch) -> int:
        return fetch.filled // self._replicas - fetch.used

    @property
    def requested(self) -> int:
        """Iterations that were asked for and that no kernel has been given."""
        return sum(fetch.count - fetch.used for fetch in self._fetches)

    @property
    def ready(self) -> int:
        """Iterations of the oldest request that can run now, without waiting."""
        return self._ready(self._fetches[0])

    @property
    def left(self) -> int:
        """Elements of the oldest request that no kernel has been given."""
        fetch = self._fetches[0]
        return fetch.filled - fetch.used * self._replicas

    @property
    def ended(self) -> bool:
        """Whether nothing more will come for the oldest request."""
        return self._fetches[0].done.done()

    @property
    def error(self) -> BaseException | None:
        """What the data set raised, if that ended the oldest request."""
        return self._fetches[0].done.result()

    def leaves(self, count: int) -> list[np.ndarray]:
        """The next `count` iterations' elements, `[capacity, (replicas,) *shape]` for each leaf.

        Only the first `count` entries are meant.
        """
        fetch = self._fetches[0]
        start, stop = (n * self._replicas for n in (fetch.used, fetch.used + count))
        fetch.used += count
        if fetch.used == fetch.count:
            self._fetches.popleft()
        rows = fetch.rows
        if start or stop < fetch.filled or not fetch.done.done():
            rows = [np.empty_like(row) for row in rows]  # the thread is writing to the others
            for row, filled in zip(rows, fetch.rows, strict=True):
                row[: stop - start] = filled[start:stop]
        if self._replicas == 1:
            return rows
        lead = len(rows[0]) // self._replicas if rows else 0
        return [row.reshape(lead, self._replicas, *row.shape[1:]) for row in rows]

    def element(self) -> list[np.ndarray]:
        """The next iteration's element alone, `[(replicas,) *shape]` for each leaf."""
        fetch = self._fetches[0]
        start = fetch.used * self._replicas
        fetch.used += 1
        if fetch.used == fetch.count:
            self._fetches.popleft()
        if self._replicas == 1:
            return [row[start, ...] for row in fetch.rows]  # an array, also of a scalar
        return [row[start : start + self._replicas] for row in fetch.rows]

    def close(self, *, wait: bool = True) -> None:
        """Ends the thread; elements that were fetched and not used go back to the queue.

        Args:
          wait: false does not wait for a data set that is working on its next element.
        """
        for fetch in self._fetches:
            fetch.cancelled = True
        if self._worker is None:
            self._give_back(list(self._fetches))
            return
        returned = self._thread.submit(self._give_back, list(self._fetches))
        self._thread.stop()
        if wait:
            returned.result()

    def _give_back(self, fetches: list[Fetch]) -> None:
        for fetch in reversed(fetches):
            self.queue.give_back(fetch.rows, fetch.used * self._replicas, fetch.filled)


def exhausted(
    queue: Any,
    requested: int,
    available: int,
    error: BaseException | None,
    replicas: int = 1,
    carried: Any = None,
) -> Any:
    """What to raise when a data set stopped short: the user's own exception, or that it ended.

    Args:
      queue: the infeed.
      requested: elements that were asked for, over all replicas.
      available: how many of them there were.
      error: what the data set raised, if it did.
      replicas: copies of the graph, each of which takes its own element.
      carried: the loop variables after the last complete iteration, if it was a loop's end.
    """
    if error is not None:
        return error
    resume = "; `error.carried` holds the loop variables after the last complete iteration"
    shared = f" ({requested // replicas} for each of {replicas} replicas)" if replicas > 1 else ""
    return OutOfRangeError(
        f"infeed `{queue.name}`: {requested} element{'s' * (requested != 1)}{shared} "
        f"{'was' if requested == 1 else 'were'} asked for, but the data set ended after "
        f"{available}\n  fix:   repeat the data set (itertools.cycle, .repeat()), or ask for fewer "
        f"elements{resume if carried is not None else ''}",
        requested=requested,
        available=available,
        carried=carried,
        infeed=queue,
    )


def of_the_loop(
    error: OutOfRangeError,
    structure: Any,
    iterations: int | None,
    done: int,
    carried: Sequence[Any],
    replicas: int,
) -> BaseException:
    """The error of one iteration as the whole loop's: what all iterations asked for and got.

    Args:
      error: from iteration `done`, counting from 0.
      structure: of the loop's variables.
      iterations: of the whole loop; None where nobody knows.
      done: complete iterations.
      carried: the flat loop variables after them, of all replicas, and no others.
      replicas: copies of the graph.
    """
    each = error.requested
    asked, given = (iterations or done + 1) * each, done * each + error.available
    leaves = [x if replicas == 1 else x[0] for x in carried]
    variables = jax.tree.unflatten(structure, leaves)
    return exhausted(error.infeed, asked, given, None, replicas, variables)


class Collector:
    """Sends what kernels computed to an outfeed, when it is there, so that devices keep busy."""

    def __init__(self, queue: Any, replicas: int, depth: int = 64):
        self._queue, self._replicas, self._depth = queue, replicas, depth
        self._pending: collections.deque[tuple[Any, Sequence[Any], int | None]]
        self._pending = collections.deque()
        self._lock = threading.RLock()  # lanes of a pipeline may flush while another one sends

    def send(self, structure: Any, leaves: Sequence[Any], count: int | None) -> None:
        """Takes device arrays, `[(replicas,) *shape]` or, with a count, `[>= count, ...]`."""
        with self._lock:
            self._pending.append((structure, leaves, count))
            while len(self._pending) > self._depth or (self._pending and self._is_ready()):
                self.deliver()

    def _is_ready(self) -> bool:
        """Whether the oldest of what is waiting has been computed."""
        leaves: list[Any] = [x for x in self._pending[0][1] if isinstance(x, jax.Array)]
        return all(leaf.is_ready() for leaf in leaves)

    def flush(self) -> None:
        """Delivers all that is waiting."""
        with self._lock:
            while self.deliver():
                pass

    def deliver(self) -> bool:
        """Delivers the oldest of what is waiting, once it is computed; false if nothing is."""
        if not self._pending:
            return False
        structure, leaves, count = self._pending.popleft()
        arrays = [np.asarray(leaf) for leaf in leaves]
        if count is None:
            self._queue.collect(structure, [a[np.newaxis] for a in arrays], self._replicas, 1)
            return True
        # A view would keep the whole buffer alive for its first few entries.
        kept = [a if len(a) == count else a[:count].copy() for a in arrays]
        self._queue.collect(structure, kept, self._replicas, count)
        return True


class Session:
    """The queues of one run of one program.

    Attributes:
      replicas: copies of the graph.
    """

    def __init__(self, replicas: int, infeeds: Sequence[Any], outfeeds: Sequence[Any]):
        self.replicas = replicas
        self._infeeds = tuple(infeeds)
        self._collectors = {queue: Collector(queue, replicas) for queue in outfeeds}
        self._feeders: dict[Any, Feeder] = {}
        self._expected: dict[Any, int] = {}
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Session:
        with contextlib.ExitStack() as begun:
            for queue in (*self._infeeds, *self._collectors):
                queue.begin_run(self.replicas)
                begun.callback(queue.end_run)
            begun.callback(self.flush)
            self._open = begun.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        with self._open:
            for feeder in self._feeders.values():
                feeder.close(wait=kind is None or issubclass(kind, Exception))

    def collector(self, queue: Any) -> Collector:
        """Where results for an outfeed go."""
        return self._collectors[queue]

    def feeder(self, queue: Any) -> Feeder:
        """What reads an infeed for the steps that take single elements."""
        if queue not in self._feeders:
            self._feeders[queue] = Feeder(queue, self.replicas)
        return self._feeders[queue]

    def expect(self, queue: Any, count: int) -> None:
        """So many single elements will be asked for: some of them may be read ahead."""
        self._expected[queue] = count

    def _one_expected(self, queue: Any, remaining: int) -> list[np.ndarray]:
        feeder = self.feeder(queue)
        block = max(1, min(AHEAD, (queue.prefetch_depth or AHEAD) // 2))
        while (missing := min(remaining, 2 * block) - feeder.requested) > 0:
            feeder.request(min(missing, block), min(missing, block))
        if not feeder.ready and not feeder.wait(self.flush, patience=0.001):
            raise exhausted(queue, self.replicas, feeder.left, feeder.error, self.replicas)
        self._expected[queue] = remaining - 1
        return feeder.element()

    def element(self, queue: Any, count: int | None) -> list[np.ndarray]:
        """The next element of an infeed for every replica, `[(count,) (replicas,) *shape]`."""
        if count is None and self._expected.get(queue):
            return self._one_expected(queue, self._expected[queue])
        feeder = self.feeder(queue)
        wanted = 1 if count is None else count
        feeder.request(wanted, wanted)
        there = 0
        while there < wanted:
            there = feeder.wait(self.flush)
            if there < wanted and feeder.ended:
                asked = wanted * self.replicas
                raise exhausted(queue, asked, feeder.left, feeder.error, self.replicas)
        leaves = feeder.leaves(wanted)
        return [leaf[0] if count is None else leaf for leaf in leaves]

    def flush(self) -> None:
        """Delivers all results that there are, since nothing else can be done now."""
        for collector in self._collectors.values():
            collector.flush()
