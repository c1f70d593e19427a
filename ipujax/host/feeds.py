"""Elements of infeeds, fetched ahead of the loop that takes them.

They come in a thread of the queue. Whoever waits for them has results delivered meanwhile: a data
set may wait for results.
"""

from __future__ import annotations

import collections
import dataclasses as dc
import threading
import time
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np

from ipujax.errors import OutOfRangeError
from ipujax.host.interrupts import Interrupts
from ipujax.host.queues import Infeed

# A data set that has given nothing for so long has nothing ready: a few times what handing
# something to another thread takes.
PAUSE_SECONDS = 0.0001
# While devices compute, results are looked for after so much more of the time that has passed.
PATIENCE = 1 / 8


@dc.dataclass
class Fetch:
    """Consecutive elements of an infeed, being stacked by its thread.

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
    _awaited: int = -1
    _arrived: threading.Event = dc.field(default_factory=threading.Event)

    def advance(self) -> None:
        """One more row holds an element."""
        self.filled += 1
        if self.filled == self._awaited:
            self._arrived.set()

    def watch(self, done: Future[BaseException | None]) -> None:
        """Its elements are on their way."""
        self.done, arrived = done, self._arrived
        done.add_done_callback(lambda _: arrived.set())  # without `self`, which holds `done`

    def reaches(self, elements: int, seconds: float) -> bool:
        """Waits until there are so many, or no more will come; false if that takes longer."""
        self._awaited = elements
        self._arrived.clear()
        if self.filled >= elements or self.done.done():  # looked at after what the thread looks at
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

    def deliver(self) -> bool:
        """Delivers results that are computed, and returns whether none is left."""
        ...


class Feeder:
    """Has an infeed read ahead of one loop, never further than the loop.

    Args:
      queue: the infeed.
      session: the run.
      each: elements that one iteration takes.
    """

    def __init__(self, queue: Infeed, session: RunWithResults, each: int = 1):
        self.queue, self.each = queue, each
        self._session, self._replicas, self._reader = session, session.replicas, queue.reader
        self._has_axis = session.replicas > 1 or session.is_part
        self._fetches: collections.deque[Fetch] = collections.deque()
        self._taken: collections.deque[tuple[Fetch, int, int]] = collections.deque()

    def request(self, count: int, capacity: int) -> None:
        """Starts to fetch `count` iterations' elements into arrays that would hold `capacity`."""
        shapes = ((capacity * self._replicas, *aval.shape) for aval in self.queue.avals)
        dtypes = (aval.dtype for aval in self.queue.avals)
        fetch = Fetch(count, list(map(np.empty, shapes, dtypes)))
        self._fetches.append(fetch)
        fetch.watch(self._reader.fetch(fetch, count * self._replicas))

    def wait(self, least: int = 1, most: int | None = None) -> int:
        """Iterations of the oldest request that can run now.

        A busy device is worth waiting for: `most` iterations (by default all) are waited for as
        long as they keep coming, or earlier ones are being computed. Once all results are out and
        the data set has nothing ready, `least` do, unless other processes run the program, too,
        which would have to do the same. Fewer means that the data set has ended;
        `exhausted` says more.
        """
        fetch, start = self._fetches[0], time.monotonic()
        wanted = fetch.count - fetch.used if most is None else most
        before, pause = fetch.filled, PAUSE_SECONDS
        while not self._arrive(fetch, wanted, pause):
            if fetch.filled != before:
                before, pause = fetch.filled, PAUSE_SECONDS
                continue
            if self._session.deliver() and not self._session.is_part:
                wanted = least
            pause = max(PAUSE_SECONDS, PATIENCE * (time.monotonic() - start))
        return fetch.filled // self._replicas - fetch.used

    def _arrive(self, fetch: Fetch, iterations: int, seconds: float) -> bool:
        with self._session.interrupts.handled_at_once():
            return fetch.reaches((fetch.used + iterations) * self._replicas, seconds)

    @property
    def requested(self) -> int:
        """Iterations that were asked for and that no kernel has been given."""
        return sum(fetch.count - fetch.used for fetch in self._fetches)

    def exhausted(self, count: int, taken: int = 0) -> BaseException:
        """What to raise if an iteration wants `count` elements and gets `taken`, and what is left.

        That is not enough, as `wait` said of the oldest request.
        """
        fetch, replicas = self._fetches[0], self._replicas
        available = fetch.filled + (taken - fetch.used) * replicas
        error = fetch.done.result()
        return exhausted(self.queue, count * replicas, available, error, replicas)

    def leaves(self, count: int) -> list[np.ndarray]:
        """The next `count` iterations' elements, `[capacity, (replicas,) *shape]` for each leaf.

        Only the first `count` entries are meant.
        """
        fetch, start, stop = self._take(count)
        rows = fetch.rows
        if start or stop < fetch.filled or not fetch.done.done():
            rows = [np.empty_like(row) for row in rows]  # the thread is writing to the others
            for row, filled in zip(rows, fetch.rows, strict=True):
                row[: stop - start] = filled[start:stop]
        if not self._has_axis:
            return rows
        lead = len(rows[0]) // self._replicas if rows else 0
        return [row.reshape(lead, self._replicas, *row.shape[1:]) for row in rows]

    def element(self) -> list[np.ndarray]:
        """The next iteration's element alone, `[(replicas,) *shape]` for each leaf."""
        fetch, start, stop = self._take(1)
        if not self._has_axis:
            return [row[start, ...] for row in fetch.rows]  # an array, also of a scalar
        return [row[start:stop] for row in fetch.rows]

    def _take(self, count: int) -> tuple[Fetch, int, int]:
        fetch = self._fetches[0]
        start, stop = (n * self._replicas for n in (fetch.used, fetch.used + count))
        fetch.used += count
        if fetch.used == fetch.count:
            self._fetches.popleft()
        self._taken.append((fetch, start, stop))
        return self._taken[-1]

    def completed(self, takings: int | None = None) -> None:
        """So many of the oldest takings, or all, have been used for good."""
        for _ in range(len(self._taken) if takings is None else min(takings, len(self._taken))):
            self._taken.popleft()

    def close(self) -> None:
        """Gives elements that were fetched or taken and not used back to the queue.

        The thread does that when it comes to it, before whatever it is asked for next.
        """
        for fetch in reversed(self._fetches):
            fetch.cancelled = True
            self._reader.give_back(fetch, fetch.used * self._replicas, None)
        for taken in reversed(self._taken):
            self._reader.give_back(*taken)


def exhausted(
    queue: Infeed,
    requested: int,
    available: int,
    error: BaseException | None,
    replicas: int = 1,
    carried: Any = None,
) -> BaseException:
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
        f"{available}",
        fix=f"repeat the data set (itertools.cycle, .repeat()), or ask for fewer "
        f"elements{resume if carried is not None else ''}",
        requested=requested,
        available=available,
        carried=carried,
        infeed=queue,
    )
