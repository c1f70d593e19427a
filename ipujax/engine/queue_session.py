"""The queues of one run of a program: the feeders of infeeds and the collectors of outfeeds.

Results are handed over as soon as they are computed.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ipujax.distribution import Exchange, ExchangeRun
from ipujax.engine.number_watch import get_current_number_watch
from ipujax.ground import InternalError, Interrupts, OutOfRangeError
from ipujax.host import Collecting, Feeder, Infeed, Outfeed, make_exhausted_error
from lowering import ops

# The number of elements that are read at a time for a loop that takes them one by one.
AHEAD = 8
# The number of results that may be pending before delivery blocks.
WAITING = 64

Leaf = jax.Array | np.ndarray | np.generic


class Collector:
    """A sender of results to an outfeed once they are ready, so that devices keep busy.

    Args:
      outfeed: the outfeed.
      receiver: what takes the results: the outfeed, or its recorder for other processes.
      replicas: copies of the graph in this process.
      is_part: whether other processes have more of them.
    """

    def __init__(self, outfeed: Outfeed, receiver: Collecting, replicas: int, is_part: bool):
        self._outfeed, self._queue, self._replicas = outfeed, receiver, replicas
        self._is_alone = is_part and replicas == 1
        self._pending: collections.deque[tuple[Any, Sequence[Leaf], int | None]]
        self._pending = collections.deque()
        self._watch = get_current_number_watch()
        self._lock = threading.RLock()  # lanes of a pipeline may flush while another one sends

    def queue_results(self, structure: Any, leaves: Sequence[Leaf], count: int | None) -> None:
        """Takes device arrays, `[(replicas,) *shape]` or, with a count, `[>= count, ...]`."""
        with self._lock:
            self._pending.append((structure, leaves, count))
            self.deliver_ready_results()

    def deliver_ready_results(self, max_pending: int = WAITING) -> bool:
        """Delivers ready results, and all but `max_pending`; returns whether none is left."""
        with self._lock:
            while len(self._pending) > max_pending or (self._pending and self._is_ready()):
                self._deliver_oldest()
            return not self._pending

    def deliver_last_results(self) -> None:
        """Delivers all that is pending: computed, unless the outfeed does not await that."""
        outfeed = self._outfeed
        with self._lock:
            is_direct = self._queue is outfeed and self._replicas == 1 and self._watch is None
            if self._pending and is_direct and not outfeed.is_awaited:
                structure, leaves, count = self._pending[-1]
                if count == 1 and all(isinstance(x, jax.Array) and len(x) == 1 for x in leaves):
                    self._pending.clear()
                    outfeed.collect_uncomputed(structure, leaves)
            self.deliver_ready_results(max_pending=0)

    def _is_ready(self) -> bool:
        """Returns whether the oldest pending result has been computed."""
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
        trimmed_arrays = [a if len(a) == count else a[:count].copy() for a in arrays]
        if self._watch is not None:
            for array in trimmed_arrays:
                self._watch.refuse_nan_and_infinity(f"outfeed `{self._queue.name}`", array)
        self._queue.collect(structure, trimmed_arrays, self._replicas, count)


class Session:
    """The queues of one run of one program.

    Attributes:
      replicas: copies of the graph in this process.
      is_part: whether other processes have more of them; arrays then have an axis of replicas, also
        of a single one.
      interrupts: delays Ctrl-C until an iteration is complete.
      is_computing: returns whether the loop that runs has dispatched what is still being computed.

    Args:
      exchange: the messages between processes that each have a part of the program.
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
        self._exchanged = None if exchange is None else exchange.begin_exchange_run(self.interrupts)
        self._queues = (*infeeds, *outfeeds)
        self._infeeds: dict[ops.Stream, Infeed] = {queue: queue for queue in infeeds}
        self._collectors: dict[ops.Stream, Collector] = {
            queue: Collector(queue, self._choose_receiver(queue), replicas, is_part)
            for queue in outfeeds
        }
        self._feeders: dict[ops.Stream, Feeder] = {}
        self._expected: dict[ops.Stream, int] = {}
        self._is_waiting = False
        self.is_computing: Callable[[], bool] = lambda: False
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Session:
        with contextlib.ExitStack() as context_stack:
            if self._exchanged is not None:
                context_stack.enter_context(self._exchanged)
            if self._queues:
                context_stack.enter_context(self.interrupts)
            for queue in self._queues:
                with (
                    self.interrupts.handle_interrupts_immediately()
                ):  # its data set may never answer
                    queue.refuse_elements_of_other_form()
                queue.begin_run(self.replicas)
                context_stack.callback(queue.end_run)
            context_stack.push(self._end_exchange)
            context_stack.callback(self._deliver_last_results)
            context_stack.push(self._close_feeders)
            self._open = context_stack.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._open.__exit__(*raised)

    def _close_feeders(self, error_type: type[BaseException] | None, *_: object) -> None:
        is_interrupted = error_type is not None and not issubclass(error_type, Exception)
        for feeder in self._feeders.values():
            if not self._is_waiting and not is_interrupted:
                feeder.forget_used_elements()
            feeder.return_unused_elements()

    def _end_exchange(self, kind: object, error: BaseException | None, trace: object) -> None:
        del kind, trace
        if self._exchanged is not None:
            self._exchanged.end_exchange_run(error)

    def _choose_receiver(self, queue: Outfeed) -> Collecting:
        return queue if self._exchanged is None else self._exchanged.recorder_of_outfeed(queue)

    @property
    def exchange_run(self) -> ExchangeRun:
        """The messages of this run with other processes, which have parts of the program."""
        if self._exchanged is None:
            raise InternalError("a message to another process, and no process has a part of this")
        return self._exchanged

    def get_outfeed_collector(self, queue: ops.Outfeed) -> Collector:
        """Returns the collector of results for an outfeed."""
        return self._collectors[queue]

    def make_loop_feeder(self, queue: ops.Infeed, elements_per_iteration: int) -> Feeder:
        """Returns a new feeder of an infeed for one loop, which the loop closes."""
        return Feeder(self._infeeds[queue], self, elements_per_iteration)

    def get_single_element_feeder(self, queue: ops.Infeed) -> Feeder:
        """Returns the feeder of an infeed for the steps that take single elements."""
        if queue not in self._feeders:
            self._feeders[queue] = Feeder(self._infeeds[queue], self)
        return self._feeders[queue]

    def announce_single_elements(self, queue: ops.Infeed, count: int) -> None:
        """Announces that so many single elements will be taken, so that some are read ahead."""
        if self._infeeds[queue].fetches_ahead:
            self._expected[queue] = count

    def take_infeed_element(self, queue: ops.Infeed, count: int | None) -> list[np.ndarray]:
        """Returns an infeed's next element for every replica, `[(count,) (replicas,) *shape]`."""
        feeder, num_elements = self.get_single_element_feeder(queue), count or 1
        remaining = self._expected.get(queue, 0) if count is None else 0
        if remaining:
            self._expected[queue] = remaining - 1
            block = max(1, min(AHEAD, (queue.prefetch_depth or AHEAD) // 2))
            while (requested := feeder.requested) < min(remaining, block + 1):
                elements = min(block, remaining - requested)
                feeder.request_elements(elements, elements)
        else:
            feeder.request_elements(num_elements, num_elements)
        self._is_waiting = True
        if feeder.wait_for_iterations(minimum=num_elements, maximum=num_elements) < num_elements:
            raise feeder.make_exhausted_error_of_iteration(num_elements)
        self._is_waiting = False
        return feeder.take_iteration() if count is None else feeder.take_iterations(count)

    def complete_iteration(self) -> None:
        """Ends an iteration, whose elements have been used; a safe point for Ctrl-C."""
        for feeder in self._feeders.values():
            feeder.forget_used_elements()
        self.interrupts.handle_delayed_interrupt()

    def convert_to_loop_error(
        self,
        error: OutOfRangeError,
        iterations: int | None,
        completed_iterations: int,
        carried: Any,
    ) -> BaseException:
        """Converts the error of one iteration into that of the loop, with totals of all iterations.

        Args:
          error: the error of iteration `completed_iterations`, counting from 0.
          iterations: the iterations of the whole loop; None if unknown.
          completed_iterations: the complete iterations.
          carried: the loop variables after those, of all replicas.
        """
        elements_per_iteration, replicas = error.requested, self.replicas
        requested, available = (
            (iterations or completed_iterations + 1) * elements_per_iteration,
            completed_iterations * elements_per_iteration + error.available,
        )
        carried_of_first_replica = (
            carried if replicas == 1 else jax.tree.map(lambda x: x[0], carried)
        )
        return make_exhausted_error(
            error.infeed, requested, available, None, replicas, carried_of_first_replica
        )

    def deliver_computed_results(self) -> bool:
        """Delivers all results that have been computed; returns whether nothing is computing."""
        none_left = all([each.deliver_ready_results() for each in self._collectors.values()])
        return none_left and not self.is_computing()

    def _deliver_last_results(self) -> None:
        """Delivers all results, waiting until those are computed that are awaited."""
        for collector in self._collectors.values():
            collector.deliver_last_results()

    def deliver_all_results(self) -> None:
        """Delivers all results, waiting until they are computed."""
        for collector in self._collectors.values():
            collector.deliver_ready_results(max_pending=0)
