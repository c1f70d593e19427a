"""What the processes of one program tell one another while it runs, and at the end of each run.

Each run ends with a message to every other process: that this one has done its part, and what it
has sent to outfeeds, or what it has raised. All then have the same queues, or raise the same.
"""

from __future__ import annotations

import collections
import dataclasses as dc
import itertools
import pickle
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from ipujax.distribution.instance import Instance
from ipujax.distribution.wire import Wire, wire
from ipujax.errors import DistributionError
from ipujax.host.interrupts import Interrupts
from ipujax.host.queues import Outfeed
from lowering import jaxpr

# What a process that waits for another sleeps between two looks: short at first.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 20e-6, 1e-3
# For the reason why an array has not come, once it is known that it will not.
_REASON_SECONDS = 2.0

_runs = itertools.count()


@dc.dataclass(frozen=True)
class Sent:
    """An outfeed of a program.

    Attributes:
      queue: the outfeed.
      process: sends elements.
      structure: of an element.
      avals: of its leaves, for one replica.
    """

    queue: Outfeed
    process: int
    structure: Any
    avals: tuple[jaxpr.Aval, ...]


class FailedElsewhere(Exception):
    """Another process has ended its run with an error.

    Attributes:
      error: the same, for this process.
    """

    def __init__(self, error: BaseException):
        super().__init__(str(error))
        self.error = error


class Exchange:
    """The messages of one program.

    Args:
      among: this process, among those that run the program.
      sent: its outfeeds, in an order that is the same in all processes.
      replicas: of the program.
    """

    def __init__(self, among: Instance, sent: Sequence[Sent], replicas: int):
        self.here, self.sent, self.replicas = among.index, tuple(sent), replicas
        self.others = [process for process in range(among.count) if process != self.here]
        self.wire: Wire = wire()

    def begin(self, interrupts: Interrupts) -> Run:
        """A run of the program; all processes begin theirs in the same order."""
        return Run(self, next(_runs), interrupts)


class Run:
    """The messages of one run; used in a `with`, so that others learn how it ends."""

    def __init__(self, exchange: Exchange, number: int, interrupts: Interrupts):
        self._exchange, self._number, self._interrupts = exchange, number, interrupts
        self._wire, self._here = exchange.wire, exchange.here
        self._device = SingleDeviceSharding(jax.local_devices()[0])
        self._has_ended = False
        self._count: collections.Counter[int] = collections.Counter()
        self._copies = {sent.queue: Copied(sent.queue) for sent in exchange.sent}
        end = [self._struct((1 + len(exchange.sent),), np.int32)]
        self._ends: dict[int, Any] = {
            process: self._wire.ask(process, ("end", number, self._here), end)[0]
            for process in exchange.others
        }

    # --- while it runs --------------------------------------------------------------------------

    def send(self, process: int, channel: int, arrays: Sequence[jax.Array]) -> None:
        """Hands arrays to another process; does not wait for it."""
        self._wire.offer(self._key(channel), jax.device_put(arrays, self._device))

    def receive(
        self, process: int, channel: int, structs: Sequence[jax.ShapeDtypeStruct]
    ) -> list[jax.Array]:
        """What another process has handed to this one; waits for it.

        Raises:
          FailedElsewhere: it will not come.
        """
        homeless = [self._struct(struct.shape, struct.dtype) for struct in structs]
        arrays = self._wire.ask(process, self._key(channel), homeless)
        self._wait(arrays, process)
        return arrays

    def copied(self, queue: Outfeed) -> Copied:
        """An outfeed that remembers what it gets, for the other processes."""
        return self._copies[queue]

    def _key(self, channel: int) -> tuple[object, ...]:
        self._count[channel] += 1
        return self._number, channel, self._count[channel]

    def _struct(self, shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=self._device)

    # --- waiting --------------------------------------------------------------------------------

    def _wait(self, arrays: Sequence[Any], process: int) -> None:
        pause = _SHORTEST_PAUSE
        with self._interrupts.handled_at_once():
            while not all(array.is_ready() for array in arrays):
                self._look_for_failures()
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        try:
            jax.block_until_ready(arrays)
        except RuntimeError as error:
            raise self._reason(process, error) from error

    def _look_for_failures(self) -> None:
        for process, end in self._ends.items():
            if end.is_ready():
                self._check_end(process, end)

    def _check_end(self, process: int, end: jax.Array) -> None:
        try:
            size = int(np.asarray(end)[0])
        except RuntimeError as error:
            raise FailedElsewhere(_lost(process, error)) from error
        if not size:
            return
        key = ("error", self._number, self._here)
        (data,) = self._wire.ask(process, key, [self._struct((size,), np.uint8)])
        error = pickle.loads(np.asarray(data).tobytes())
        error.add_note(f"This was raised in instance {process}.")
        raise FailedElsewhere(error)

    def _reason(self, process: int, error: RuntimeError) -> FailedElsewhere:
        """Why an array has not come: what its process says of that, if it says something."""
        until = time.monotonic() + _REASON_SECONDS
        while time.monotonic() < until:
            try:
                self._look_for_failures()
            except FailedElsewhere as reason:
                return reason
            time.sleep(_LONGEST_PAUSE)
        return FailedElsewhere(_lost(process, error))

    # --- the end --------------------------------------------------------------------------------

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not self._has_ended:
            is_own = not isinstance(error, FailedElsewhere)
            self._end(_pickled(error, self._here) if is_own else b"")
        if isinstance(error, FailedElsewhere):
            raise error.error from None

    def finish(self) -> None:
        """Ends the run well, if all processes do; outfeeds then have the elements of all.

        Raises:
          FailedElsewhere: another process has not.
        """
        self._offer_elements()
        for process, end in self._ends.items():
            self._wait([end], process)
            self._check_end(process, end)
        for number, sent in enumerate(self._exchange.sent):
            if sent.process != self._here:
                self._collect(number, sent)

    def _end(self, error: bytes, counts: Sequence[int] = ()) -> None:
        """Tells the others that nothing more comes."""
        self._has_ended = True
        counts = counts or [0] * len(self._exchange.sent)
        message = np.array([len(error), *counts], np.int32)
        for process in self._exchange.others:
            if error:
                self._offer(("error", self._number, process), [np.frombuffer(error, np.uint8)])
            self._offer(("end", self._number, process), [message])

    def _offer(self, key: tuple[object, ...], arrays: Sequence[np.ndarray]) -> None:
        self._wire.offer(key, jax.device_put(list(arrays), self._device))

    def _offer_elements(self) -> None:
        """Tells the others that all is well, and what this process has sent to outfeeds."""
        blocks = [self._copies[sent.queue].stacked() for sent in self._exchange.sent]
        self._end(b"", [count for count, _ in blocks])
        for number, (count, leaves) in enumerate(blocks):
            for process in self._exchange.others if count else ():
                self._offer((self._number, "outfeed", number, process), leaves)

    def _collect(self, number: int, sent: Sent) -> None:
        """Gives an outfeed what another process has sent to it."""
        count = int(np.asarray(self._ends[sent.process])[1 + number])
        if not count:
            return
        replicas = self._exchange.replicas
        lead = (count,) if replicas == 1 else (count, replicas)
        structs = [self._struct((*lead, *aval.shape), aval.dtype) for aval in sent.avals]
        key = (self._number, "outfeed", number, self._here)
        arrays = self._wire.ask(sent.process, key, structs)
        self._wait(arrays, sent.process)
        sent.queue.collect(sent.structure, [np.asarray(x) for x in arrays], replicas, count)


class Copied:
    """An outfeed that remembers what one run has sent to it."""

    def __init__(self, queue: Outfeed):
        self._queue = queue
        self._blocks: list[tuple[int, list[np.ndarray]]] = []

    def collect(
        self, structure: Any, arrays: Sequence[np.ndarray], replicas: int, count: int
    ) -> None:
        """Takes consecutive elements, as an outfeed does."""
        self._queue.collect(structure, arrays, replicas, count)
        if self._queue.keeps_last:
            self._blocks.clear()
        self._blocks.append((count, list(arrays)))

    def stacked(self) -> tuple[int, list[np.ndarray]]:
        """How many elements there were, and each leaf of all of them."""
        leaves = zip(*(arrays for _, arrays in self._blocks), strict=True)
        return sum(count for count, _ in self._blocks), [np.concatenate(leaf) for leaf in leaves]


def _pickled(error: BaseException, here: int) -> bytes:
    """An error, for other processes."""
    if isinstance(error, Exception):
        try:
            data = pickle.dumps(error)
            pickle.loads(data)  # some can be written and not read
        except Exception:
            pass
        else:
            return data
    text = f"instance {here} ended its run by {type(error).__name__}: {error}"
    return pickle.dumps(DistributionError(text))


def _lost(process: int, error: RuntimeError) -> DistributionError:
    return DistributionError(f"instance {process} does not answer any more: {error}")
