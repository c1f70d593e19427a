"""Fetches elements of infeeds ahead of the loop that takes them.

A thread of the queue reads them. Waiting for elements delivers results meanwhile, as a data set may
wait for results.
"""

from __future__ import annotations

import collections
import dataclasses as dc
import threading
import time
from concurrent.futures import Future
from typing import Protocol

import numpy as np

from ipujax.ground import Interrupts, OutOfRangeError, allocate_aligned
from ipujax.host.queues import Infeed

# A data set that has given nothing for so long has nothing ready: a few times what handing an
# element to another thread takes.
PAUSE_SECONDS = 0.0001
# While devices compute, results are looked for after so much more of the time that has passed.
PATIENCE = 1 / 8


@dc.dataclass
class Fetch:
    """Consecutive elements of an infeed, being stacked by its thread.

    Attributes:
      count: the number of requested iterations.
      rows: one array per leaf, `[capacity * replicas, *shape]`, element after element.
      filled: elements that are in `rows` by now.
      used: iterations whose elements a kernel has received.
      cancelled: whether the rest is not needed.
      done: the thread's work; its result is the data set's exception, or None.
    """

    count: int
    rows: list[np.ndarray]
    filled: int = 0
    used: int = 0
    cancelled: bool = False
    done: Future[BaseException | None] = dc.field(default_factory=Future[BaseException | None])
    _awaited: int = -1
    _arrived: threading.Event = dc.field(default_factory=threading.Event)

    def count_filled_row(self) -> None:
        """Counts one more row that holds an element."""
        self.filled += 1
        if self.filled == self._awaited:
            self._arrived.set()

    def watch_future(self, future: Future[BaseException | None]) -> None:
        """Sets the future of the thread's work, whose end wakes up `wait_for_elements`."""
        self.done, event = future, self._arrived
        future.add_done_callback(lambda _: event.set())  # without `self`, which holds the future

    def wait_for_elements(self, elements: int, seconds: float) -> bool:
        """Waits until so many elements are there or no more will come; False on a timeout."""
        self._awaited = elements
        self._arrived.clear()
        if self.filled >= elements or self.done.done():  # only now, as the thread reads `_awaited`
            return True
        return self._arrived.wait(seconds)


class RunWithResults(Protocol):
    """A run of a program that a `Feeder` feeds, and whose results it has delivered meanwhile.

    Attributes:
      replicas: copies of the graph in this process.
      is_part: whether other processes have more of them.
      interrupts: holds Ctrl-C back until an iteration is complete.
    """

    replicas: int
    is_part: bool
    interrupts: Interrupts

    def deliver_computed_results(self) -> bool:
        """Delivers results that are computed, and returns whether none is left."""
        ...


class Feeder:
    """A reader of an infeed ahead of one loop, never further than the loop.

    Args:
      queue: the infeed.
      session: the run.
      elements_per_iteration: elements that one iteration takes.
    """

    def __init__(self, queue: Infeed, session: RunWithResults, elements_per_iteration: int = 1):
        self.queue, self.each = queue, elements_per_iteration
        self._session, self._replicas, self._reader = session, session.replicas, queue.reader
        self._has_axis = session.replicas > 1 or session.is_part
        self._fetches: collections.deque[Fetch] = collections.deque()
        self._taken: collections.deque[tuple[Fetch, int, int]] = collections.deque()

    def request_elements(self, count: int, capacity: int) -> None:
        """Starts to fetch `count` iterations' elements into arrays that would hold `capacity`."""
        shapes = ((capacity * self._replicas, *aval.shape) for aval in self.queue.avals)
        dtypes = (aval.dtype for aval in self.queue.avals)
        fetch = Fetch(count, list(map(allocate_aligned, shapes, dtypes)))
        self._fetches.append(fetch)
        fetch.watch_future(self._reader.fetch(fetch, count * self._replicas))

    def wait_for_iterations(self, minimum: int = 1, maximum: int | None = None) -> int:
        """Waits for elements of the oldest request; returns how many iterations can run now.

        Waits for `maximum` iterations (by default all) as long as elements keep coming, or earlier
        ones are being computed. Once all results are out and the data set has nothing ready,
        `minimum` are enough, unless other processes run the program, too, which would have to do
        the same. Fewer means that the data set has ended; see `make_exhausted_error_of_iteration`.
        """
        fetch, start = self._fetches[0], time.monotonic()
        iterations = fetch.count - fetch.used if maximum is None else maximum
        filled_before, pause = fetch.filled, PAUSE_SECONDS
        while not self._wait_interruptibly(fetch, iterations, pause):
            if fetch.filled != filled_before:
                filled_before, pause = fetch.filled, PAUSE_SECONDS
                continue
            if self._session.deliver_computed_results() and not self._session.is_part:
                iterations = minimum
            pause = max(PAUSE_SECONDS, PATIENCE * (time.monotonic() - start))
        return fetch.filled // self._replicas - fetch.used

    def _wait_interruptibly(self, fetch: Fetch, iterations: int, seconds: float) -> bool:
        with self._session.interrupts.handle_interrupts_immediately():
            return fetch.wait_for_elements((fetch.used + iterations) * self._replicas, seconds)

    @property
    def requested(self) -> int:
        """The iterations that were requested and that no kernel has received."""
        return sum(fetch.count - fetch.used for fetch in self._fetches)

    def make_exhausted_error_of_iteration(self, count: int, received: int = 0) -> BaseException:
        """Returns the error of an iteration that needs `count` elements where too few are left.

        To be called when `wait_for_iterations` returned too few; `received` were taken before.
        """
        fetch, replicas = self._fetches[0], self._replicas
        available = fetch.filled + (received - fetch.used) * replicas
        error = fetch.done.result()
        return make_exhausted_error(self.queue, count * replicas, available, error, replicas)

    def take_iterations(self, count: int) -> list[np.ndarray]:
        """Returns the next `count` iterations' elements, `[capacity, (replicas,) *shape]` per leaf.

        Only the first `count` entries are valid.
        """
        fetch, start, stop = self._take_rows(count)
        rows = fetch.rows
        if start or stop < fetch.filled or not fetch.done.done():
            rows = [np.empty_like(row) for row in rows]  # the thread is writing to the others
            for row, source_row in zip(rows, fetch.rows, strict=True):
                row[: stop - start] = source_row[start:stop]
        if not self._has_axis:
            return rows
        iterations = len(rows[0]) // self._replicas if rows else 0
        return [row.reshape(iterations, self._replicas, *row.shape[1:]) for row in rows]

    def take_iteration(self) -> list[np.ndarray]:
        """Returns the next iteration's element, `[(replicas,) *shape]` for each leaf."""
        fetch, start, stop = self._take_rows(1)
        if not self._has_axis:
            return [row[start, ...] for row in fetch.rows]  # an array, also of a scalar
        return [row[start:stop] for row in fetch.rows]

    def _take_rows(self, count: int) -> tuple[Fetch, int, int]:
        fetch = self._fetches[0]
        start, stop = (n * self._replicas for n in (fetch.used, fetch.used + count))
        fetch.used += count
        if fetch.used == fetch.count:
            self._fetches.popleft()
        self._taken.append((fetch, start, stop))
        return self._taken[-1]

    def forget_used_elements(self, count: int | None = None) -> None:
        """Forgets so many of the oldest takings, or all, as their elements have been used."""
        for _ in range(len(self._taken) if count is None else min(count, len(self._taken))):
            self._taken.popleft()

    def return_unused_elements(self) -> None:
        """Gives elements that were fetched or taken and not used back to the queue.

        The thread does that before the next request.
        """
        for fetch in reversed(self._fetches):
            fetch.cancelled = True
            self._reader.return_unused_rows(fetch, fetch.used * self._replicas, None)
        for taking in reversed(self._taken):
            self._reader.return_unused_rows(*taking)


def make_exhausted_error(
    queue: Infeed,
    requested: int,
    available: int,
    error: BaseException | None,
    replicas: int = 1,
    carried: object = None,
) -> BaseException:
    """Returns the error of a data set that stopped short: the user's exception, or its end.

    Args:
      queue: the infeed.
      requested: elements that were requested, over all replicas.
      available: how many of them the data set had.
      error: the exception of the data set, or None.
      replicas: copies of the graph, each of which takes its own element.
      carried: the loop variables after the last complete iteration, if it was a loop's end.
    """
    if error is not None:
        return error
    resume_hint = "; `error.carried` holds the loop variables after the last complete iteration"
    replica_text = (
        f" ({requested // replicas} for each of {replicas} replicas)" if replicas > 1 else ""
    )
    return OutOfRangeError(
        f"infeed `{queue.name}`: {requested} element{'s' * (requested != 1)}{replica_text} "
        f"{'was' if requested == 1 else 'were'} asked for, but the data set ended after "
        f"{available}",
        fix=f"repeat the data set (itertools.cycle, .repeat()), or ask for fewer "
        f"elements{resume_hint if carried is not None else ''}",
        requested=requested,
        available=available,
        carried=carried,
        infeed=queue,
    )
