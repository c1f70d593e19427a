"""The queues of one run: elements fetched ahead of the loop, results collected behind it."""

from __future__ import annotations

import collections
import contextlib
import dataclasses as dc
import queue as queue_module
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from ipujax.errors import OutOfRangeError

# How long a loop waits for a whole chunk before it goes on with the elements that there are.
PATIENCE_SECONDS = 0.02


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


class _Worker:
    """Does its tasks one after the other, in a thread that does not keep a process from ending.

    A data set may block for ever; the threads of `concurrent.futures` would be waited for.
    """

    def __init__(self, name: str):
        self._tasks: queue_module.SimpleQueue[Callable[[], None] | None]
        self._tasks = queue_module.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Has a function called after the earlier ones."""
        future: Future[Any] = Future()

        def task() -> None:
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)

        self._tasks.put(task)
        return future

    def stop(self) -> None:
        """Ends the thread after what has been submitted."""
        self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


class Feeder:
    """Reads an infeed ahead of one loop, in a thread of its own, never further than the loop."""

    def __init__(self, queue: Any, replicas: int):
        self.queue, self._replicas = queue, replicas
        self._thread = _Worker(f"ipujax-{queue.name}")
        self._fetches: collections.deque[Fetch] = collections.deque()

    def request(self, count: int, capacity: int) -> None:
        """Starts to fetch `count` iterations' elements into arrays that would hold `capacity`."""
        shapes = ((capacity * self._replicas, *aval.shape) for aval in self.queue.avals)
        dtypes = (aval.dtype for aval in self.queue.avals)
        fetch = Fetch(count, list(map(np.empty, shapes, dtypes)))
        self._fetches.append(fetch)
        fetch.done = self._thread.submit(self._fill, fetch)

    def _fill(self, fetch: Fetch) -> BaseException | None:
        return self.queue.fill(fetch, fetch.count * self._replicas)

    def wait(self, idle: Callable[[], None]) -> int:
        """Iterations of the oldest request that can run now: all, or some after a while, or none.

        Zero means that the data set has ended; `error` says more. `idle` is called whenever
        nothing has come for `PATIENCE_SECONDS`.
        """
        fetch = self._fetches[0]
        while not fetch.done.done():
            try:
                fetch.done.result(timeout=PATIENCE_SECONDS)
            except TimeoutError:
                idle()
                if self._ready(fetch):
                    break
        return self._ready(fetch)

    def _ready(self, fetch: Fetch) -> int:
        return fetch.filled // self._replicas - fetch.used

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
    """Sends what kernels computed to an outfeed, a few steps behind so that devices keep busy."""

    def __init__(self, queue: Any, replicas: int, depth: int = 2):
        self._queue, self._replicas, self._depth = queue, replicas, depth
        self._pending: collections.deque[tuple[Any, Sequence[Any], int | None]]
        self._pending = collections.deque()

    def send(self, structure: Any, leaves: Sequence[Any], count: int | None) -> None:
        """Takes device arrays, `[(replicas,) *shape]` or, with a count, `[>= count, ...]`."""
        self._pending.append((structure, leaves, count))
        while len(self._pending) > self._depth:
            self.deliver()

    def flush(self) -> None:
        """Delivers all that is waiting."""
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

    def element(self, queue: Any, count: int | None) -> list[np.ndarray]:
        """The next element of an infeed for every replica, `[(count,) (replicas,) *shape]`."""
        feeder = self._feeders.get(queue) or Feeder(queue, self.replicas)
        self._feeders[queue] = feeder
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
