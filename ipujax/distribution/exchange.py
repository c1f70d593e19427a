"""What the processes of one program tell one another while it runs, and at the end of each run.

Each run ends with a message to every other process: that this one has done its part, and what it
has sent to outfeeds, or what it has raised. All then have the same queues, or raise the same.
"""

from __future__ import annotations

import collections
import dataclasses as dc
import itertools
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from ipujax.distribution.error_data import MOST_BYTES, NoDataError, decode_error, encode_error
from ipujax.distribution.instance import Instance
from ipujax.distribution.messages import SEAL_BYTES, ForgedMessageError, open_sealed, seal
from ipujax.distribution.wire import Wire, wire
from ipujax.errors import DistributionError
from ipujax.host.interrupts import Interrupts
from ipujax.host.queues import Outfeed
from lowering import jaxpr

# What a process that waits for another sleeps between two looks: short at first.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 20e-6, 1e-3
# For the reason why an array has not come, once it is known that it will not.
_REASON_SECONDS = 2.0

# A process that computes on all of its cores is slow to answer: what it has is asked for ahead.
_AHEAD = 4

_COUNT = np.dtype("<i4")  # of what a run's end says

_runs = itertools.count()


@dc.dataclass(frozen=True)
class Sent:
    """An outfeed of a program.

    Attributes:
      queue: the outfeed.
      structure: of an element.
      avals: of its leaves, for one replica.
    """

    queue: Outfeed
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
        self._failures: dict[int, FailedElsewhere | None] = {}
        self._count: collections.Counter[int] = collections.Counter()
        self._expected: collections.Counter[int] = collections.Counter()
        self._asked: collections.defaultdict[int, collections.deque[list[jax.Array]]]
        self._asked = collections.defaultdict(collections.deque)
        self._copies = {sent.queue: Copied(sent.queue) for sent in exchange.sent}
        end = [self._struct((SEAL_BYTES + _COUNT.itemsize * (1 + len(exchange.sent)),), np.uint8)]
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
        self._ask(process, channel, structs, at_least=1)
        arrays = self._asked[channel].popleft()
        self._wait(arrays, process)
        return arrays

    def expect(
        self, process: int, channel: int, structs: Sequence[jax.ShapeDtypeStruct], count: int
    ) -> None:
        """So many times `receive` will be called: what comes may come ahead of that."""
        self._expected[channel] += count
        self._ask(process, channel, structs)

    def _ask(
        self,
        process: int,
        channel: int,
        structs: Sequence[jax.ShapeDtypeStruct],
        at_least: int = 0,
    ) -> None:
        """Asks for what comes next, and for some of what is expected after it."""
        asked = self._asked[channel]
        homeless = [self._struct(struct.shape, struct.dtype) for struct in structs]
        while len(asked) < at_least or (len(asked) < _AHEAD and self._expected[channel]):
            self._expected[channel] -= bool(self._expected[channel])
            asked.append(self._wire.ask(process, self._key(channel), homeless))

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
        """Waits for arrays of another process, unless any has failed meanwhile."""
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
        if self._has_ended:
            return  # what others have sent to outfeeds is taken in any case
        for process, end in self._ends.items():
            if end.is_ready():
                self._check_end(process)

    def _check_end(self, process: int) -> None:
        """Raises what another process has ended with."""
        if process not in self._failures:
            self._failures[process] = self._failure(process)
        failure = self._failures[process]
        if failure is not None:
            raise failure

    def _failure(self, process: int) -> FailedElsewhere | None:
        try:
            size, *_ = self._read_end(process)
            if not size:
                return None
            if not 0 < size <= MOST_BYTES:
                raise NoDataError(f"an error of {size} bytes")
            key = ("error", self._number, self._here)
            (data,) = self._wire.ask(process, key, [self._struct((SEAL_BYTES + size,), np.uint8)])
            error = decode_error(self._open(process, "error", data))
        except RuntimeError as error:
            return FailedElsewhere(_lost(process, error))
        except ForgedMessageError:
            return FailedElsewhere(_forged(process))
        except NoDataError as wrong:
            told = f"instance {process} ended its run, and what it says of that is {wrong}"
            return FailedElsewhere(DistributionError(told))
        error.add_note(f"This was raised in instance {process}.")
        return FailedElsewhere(error)

    def _read_end(self, process: int) -> list[int]:
        """The bytes of another process's error, 0 without one, and what each outfeed got there."""
        content = self._open(process, "end", self._ends[process])
        return np.frombuffer(content, _COUNT).tolist()

    def _open(self, process: int, kind: str, message: Any) -> bytes:
        address = (kind, self._number, process, self._here)
        return open_sealed(self._wire.key, address, np.asarray(message).tobytes())

    def _seal(self, process: int, kind: str, content: bytes) -> np.ndarray:
        address = (kind, self._number, self._here, process)
        return np.frombuffer(seal(self._wire.key, address, content), np.uint8)

    def _reason(self, process: int, error: RuntimeError) -> FailedElsewhere:
        """Why an array has not come: what its process says of that, if it says something."""
        until = time.monotonic() + _REASON_SECONDS
        while time.monotonic() < until and not self._ends[process].is_ready():
            time.sleep(_LONGEST_PAUSE)
        try:
            self._look_for_failures()
        except FailedElsewhere as reason:
            return reason
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
        self.end(error)
        if isinstance(error, FailedElsewhere):
            raise error.error from None

    def end(self, error: BaseException | None) -> None:
        """Ends the run here, once; waits for its end elsewhere, and takes what was sent there.

        Args:
          error: by which it ends; None if all went well here.

        Raises:
          FailedElsewhere: all went well here alone.
        """
        if self._has_ended:
            return
        self._has_ended = True
        if error is None or isinstance(error, FailedElsewhere):
            self._tell(b"")
        else:
            self._tell(encode_error(error, self._here))
        failures: list[FailedElsewhere] = []
        for process in self._exchange.others:
            try:
                self._wait([self._ends[process]], process)
                self._collect(process)
                self._check_end(process)
            except FailedElsewhere as failure:
                failures.append(failure)
        if error is None and failures:
            raise failures[0]

    def _tell(self, error: bytes) -> None:
        """Tells the others of the end, and gives them what this process has sent to outfeeds."""
        blocks = [self._copies[sent.queue].stacked() for sent in self._exchange.sent]
        counts = np.array([len(error), *(count for count, _ in blocks)], _COUNT).tobytes()
        for process in self._exchange.others:
            self._offer(("end", self._number, process), [self._seal(process, "end", counts)])
            if error:
                message = self._seal(process, "error", error)
                self._offer(("error", self._number, process), [message])
            for number, (count, leaves) in enumerate(blocks):
                if count:
                    self._offer((self._number, "outfeed", number, process), leaves)

    def _offer(self, key: tuple[object, ...], arrays: Sequence[np.ndarray]) -> None:
        self._wire.offer(key, jax.device_put(list(arrays), self._device))

    def _collect(self, process: int) -> None:
        """Gives outfeeds what another process has sent to them."""
        try:
            _, *counts = self._read_end(process)
        except ForgedMessageError:
            raise FailedElsewhere(_forged(process)) from None
        replicas = self._exchange.replicas
        for number, (sent, count) in enumerate(zip(self._exchange.sent, counts, strict=True)):
            if not count:
                continue
            lead = (count,) if replicas == 1 else (count, replicas)
            structs = [self._struct((*lead, *aval.shape), aval.dtype) for aval in sent.avals]
            arrays = self._wire.ask(process, (self._number, "outfeed", number, self._here), structs)
            self._wait(arrays, process)
            sent.queue.collect(sent.structure, [np.asarray(x) for x in arrays], replicas, count)


class Copied:
    """An outfeed that remembers what one run has sent to it."""

    def __init__(self, queue: Outfeed):
        self._queue = queue
        self._blocks: list[tuple[int, list[np.ndarray]]] = []

    @property
    def name(self) -> str:
        """The outfeed's."""
        return self._queue.name

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


def _lost(process: int, error: RuntimeError) -> DistributionError:
    return DistributionError(f"instance {process} does not answer any more: {error}")


def _forged(process: int) -> DistributionError:
    return DistributionError(
        f"a message in the name of instance {process} was not sent by this program: it is not "
        "sealed with its key",
        fix="look for who else reaches these machines; start all instances by one ipurun",
    )
