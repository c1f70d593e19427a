"""The queues of one run of a program: what feeds it, and results collected behind it.

Results are handed over as soon as they are computed.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ipujax.distribution.exchange import Exchange, Run
from ipujax.errors import InternalError, OutOfRangeError
from ipujax.host.feeds import Feeder, exhausted
from ipujax.host.interrupts import Interrupts
from ipujax.host.number_watch import get_current_watch
from ipujax.host.queues import Collecting, Infeed, Outfeed
from lowering import ops

# How many elements are read at a time for a loop that takes them one by one.
AHEAD = 8
# How many results may wait to be computed before somebody waits for them.
WAITING = 64

Leaf = jax.Array | np.ndarray | np.generic


class Collector:
    """Sends what kernels computed to an outfeed, when it is there, so that devices keep busy."""

    def __init__(self, queue: Collecting, replicas: int, is_part: bool):
        self._queue, self._replicas = queue, replicas
        self._is_alone = is_part and replicas == 1
        self._pending: collections.deque[tuple[Any, Sequence[Leaf], int | None]]
        self._pending = collections.deque()
        self._watch = get_current_watch()
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
        if self._watch is not None:
            for array in kept:
                self._watch.look_at(f"outfeed `{self._queue.name}`", array)
        self._queue.collect(structure, kept, self._replicas, count)


class Session:
    """The queues of one run of one program.

    Attributes:
      replicas: copies of the graph in this process.
      is_part: whether other processes have more of them; arrays then have an axis of replicas, also
        of a single one.
      interrupts: holds Ctrl-C back until an iteration is complete.

    Args:
      exchange: between processes that each have a part of the program.
    """

    def __init__(
        self,
        replicas: int,
        infeeds: Sequence[Infeed],
        outfeeds: Sequence[Outfeed],
        is_part: bool = False,
        exchange: Exchange | None = None,
    ):
        self.replicas, self.is_part, self.interrupts = replicas, is_part, Interrupts()
        self._exchanged = None if exchange is None else exchange.begin(self.interrupts)
        self._queues = (*infeeds, *outfeeds)
        self._infeeds: dict[ops.Stream, Infeed] = {queue: queue for queue in infeeds}
        self._collectors: dict[ops.Stream, Collector] = {
            queue: Collector(self._target(queue), replicas, is_part) for queue in outfeeds
        }
        self._feeders: dict[ops.Stream, Feeder] = {}
        self._expected: dict[ops.Stream, int] = {}
        self._is_waiting = False
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Session:
        with contextlib.ExitStack() as begun:
            if self._exchanged is not None:
                begun.enter_context(self._exchanged)
            if self._queues:
                begun.enter_context(self.interrupts)
            for queue in self._queues:
                with self.interrupts.handled_at_once():  # its data set may never answer
                    queue.check_elements()
                queue.begin_run(self.replicas)
                begun.callback(queue.end_run)
            begun.push(self._agree)
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

    def _agree(self, kind: object, error: BaseException | None, trace: object) -> None:
        del kind, trace
        if self._exchanged is not None:
            self._exchanged.end(error)

    def _target(self, queue: Outfeed) -> Collecting:
        return queue if self._exchanged is None else self._exchanged.copied(queue)

    @property
    def exchanged(self) -> Run:
        """The messages of this run with other processes, which have parts of the program."""
        if self._exchanged is None:
            raise InternalError("a message to another process, and no process has a part of this")
        return self._exchanged

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
        if self._infeeds[queue].fetches_ahead:
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
