"""The queues of one run: elements fetched ahead of the loop, results collected behind it.

Elements come in a thread of the queue, and results are handed over as soon as they are computed.
So whoever waits here waits for both, and a data set may wait for results.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses as dc
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from ipujax.errors import OutOfRangeError
from ipujax.host.interrupts import Interrupts
from ipujax.host.queues import Infeed, Outfeed
from lowering import ops

# A data set that has given nothing for so long has nothing ready: a few times what handing
# something to another thread takes.
PAUSE_SECONDS = 0.0001
# While devices compute, results are looked for after so much more of the time that has passed.
PATIENCE = 1 / 8
# How many elements are read at a time for a loop that takes them one by one.
AHEAD = 8
# How many results may wait to be computed before somebody waits for them.
WAITING = 64

Leaf = jax.Array | np.ndarray | np.generic


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


class Feeder:
    """Has an infeed read ahead of one loop, never further than the loop.

    Args:
      queue: the infeed.
      session: the run.
      each: elements that one iteration takes.
    """

    def __init__(self, queue: Infeed, session: Session, each: int = 1):
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


class Collector:
    """Sends what kernels computed to an outfeed, when it is there, so that devices keep busy."""

    def __init__(self, queue: Outfeed, replicas: int, is_part: bool):
        self._queue, self._replicas = queue, replicas
        self._is_alone = is_part and replicas == 1
        self._pending: collections.deque[tuple[Any, Sequence[Leaf], int | None]]
        self._pending = collections.deque()
        self._lock = threading.RLock()  # lanes of a pipeline may flush while another one sends

    def send(self, structure: Any, leaves: Sequence[Leaf], count: int | None) -> None:
        """Takes device arrays, `[(replicas,) *shape]` or, with a count, `[>= count, ...]`."""
        with self._lock:
            self._pending.append((structure, leaves, count))
            self.deliver()

    def deliver(self, waiting: int = WAITING) -> bool:
        """Delivers what has been computed, and all but so many others; whether none is left."""
        with self._lock:
            while len(self._pending) > waiting or (self._pending and self._is_ready()):
                self._deliver_oldest()
            return not self._pending

    def _is_ready(self) -> bool:
        """Whether the oldest of what is waiting has been computed."""
        leaves: list[Any] = [x for x in self._pending[0][1] if isinstance(x, jax.Array)]
        return all(leaf.is_ready() for leaf in leaves)

    def _deliver_oldest(self) -> None:
        structure, leaves, count = self._pending.popleft()
        arrays = [np.asarray(leaf) for leaf in leaves]
        if self._is_alone:
            arrays = [array.squeeze(0 if count is None else 1) for array in arrays]
        if count is None:
            arrays, count = [a[np.newaxis] for a in arrays], 1
        # A view would keep the whole buffer alive for its first few entries.
        kept = [a if len(a) == count else a[:count].copy() for a in arrays]
        self._queue.collect(structure, kept, self._replicas, count)


class Session:
    """The queues of one run of one program.

    Attributes:
      replicas: copies of the graph in this process.
      is_part: whether other processes have more of them; arrays then have an axis of replicas, also
        of a single one.
      interrupts: holds Ctrl-C back until an iteration is complete.
    """

    def __init__(
        self,
        replicas: int,
        infeeds: Sequence[Infeed],
        outfeeds: Sequence[Outfeed],
        is_part: bool = False,
    ):
        self.replicas, self.is_part, self.interrupts = replicas, is_part, Interrupts()
        self._queues = (*infeeds, *outfeeds)
        self._infeeds: dict[ops.Stream, Infeed] = {queue: queue for queue in infeeds}
        self._collectors: dict[ops.Stream, Collector] = {
            queue: Collector(queue, replicas, is_part) for queue in outfeeds
        }
        self._feeders: dict[ops.Stream, Feeder] = {}
        self._expected: dict[ops.Stream, int] = {}
        self._is_waiting = False
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Session:
        with contextlib.ExitStack() as begun:
            if self._queues:
                begun.enter_context(self.interrupts)
            for queue in self._queues:
                queue.begin_run(self.replicas)
                begun.callback(queue.end_run)
            begun.callback(self.flush)
            begun.push(self._close)
            self._open = begun.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._open.__exit__(*raised)

    def _close(self, kind: type[BaseException] | None, *_: object) -> None:
        is_interrupted = kind is not None and not issubclass(kind, Exception)
        for feeder in self._feeders.values():
            if not self._is_waiting and not is_interrupted:
                feeder.completed()
            feeder.close()

    def collector(self, queue: ops.Outfeed) -> Collector:
        """Where results for an outfeed go."""
        return self._collectors[queue]

    def feeder_of_loop(self, queue: ops.Infeed, each: int) -> Feeder:
        """What reads an infeed for one loop, `each` elements an iteration; the loop closes it."""
        return Feeder(self._infeeds[queue], self, each)

    def feeder(self, queue: ops.Infeed) -> Feeder:
        """What reads an infeed for the steps that take single elements."""
        if queue not in self._feeders:
            self._feeders[queue] = Feeder(self._infeeds[queue], self)
        return self._feeders[queue]

    def expect(self, queue: ops.Infeed, count: int) -> None:
        """So many single elements will be asked for: some of them may be read ahead."""
        self._expected[queue] = count

    def element(self, queue: ops.Infeed, count: int | None) -> list[np.ndarray]:
        """The next element of an infeed for every replica, `[(count,) (replicas,) *shape]`."""
        feeder, wanted = self.feeder(queue), count or 1
        remaining = self._expected.get(queue, 0) if count is None else 0
        if remaining:
            self._expected[queue] = remaining - 1
            block = max(1, min(AHEAD, (queue.prefetch_depth or AHEAD) // 2))
            while (missing := min(remaining, 2 * block) - feeder.requested) > 0:
                feeder.request(min(missing, block), min(missing, block))
        else:
            feeder.request(wanted, wanted)
        self._is_waiting = True
        if feeder.wait(least=wanted, most=wanted) < wanted:
            raise feeder.exhausted(wanted)
        self._is_waiting = False
        return feeder.element() if count is None else feeder.leaves(count)

    def completed(self) -> None:
        """An iteration is complete: what it took has been used. A place for Ctrl-C."""
        for feeder in self._feeders.values():
            feeder.completed()
        self.interrupts.check()

    def of_the_loop(
        self, error: OutOfRangeError, iterations: int | None, done: int, carried: Any
    ) -> BaseException:
        """The error of one iteration as the whole loop's: what all iterations asked for and got.

        Args:
          error: from iteration `done`, counting from 0.
          iterations: of the whole loop; None where nobody knows.
          done: complete iterations.
          carried: the loop variables after them, of all replicas.
        """
        each, replicas = error.requested, self.replicas
        asked, available = (iterations or done + 1) * each, done * each + error.available
        firsts = carried if replicas == 1 else jax.tree.map(lambda x: x[0], carried)
        return exhausted(error.infeed, asked, available, None, replicas, firsts)

    def deliver(self) -> bool:
        """Delivers all results that have been computed; whether there are no others."""
        return all([collector.deliver() for collector in self._collectors.values()])

    def flush(self) -> None:
        """Delivers all results, once they are computed."""
        for collector in self._collectors.values():
            collector.deliver(waiting=0)
