"""Exchanges arrays, outfeeds and errors between the processes of a program.

Each run ends with a message to every other process: that this one has done its part, and the
elements that it sent to outfeeds, or its error. All then have the same queues, or raise the same.
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
from ipujax.distribution.messages import (
    SEAL_BYTES,
    ForgedMessageError,
    open_sealed_message,
    seal_message,
)
from ipujax.distribution.wire import Wire, get_wire
from ipujax.ground import DistributionError, Instance, Interrupts
from ipujax.host import Outfeed
from lowering import jaxpr

# The time that a waiting process sleeps between two checks: short at first.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 20e-6, 1e-3
# The time to wait for the reason why an array will not come.
_REASON_SECONDS = 2.0

# A process that computes on all of its cores answers slowly: arrays are requested ahead.
_AHEAD = 4

_COUNT = np.dtype("<i4")  # of the numbers in a run's end message

_runs = itertools.count()


@dc.dataclass(frozen=True)
class SentOutfeed:
    """An outfeed of a program.

    Attributes:
      queue: the outfeed.
      structure: the structure of an element.
      avals: the avals of its leaves, for one replica.
    """

    queue: Outfeed
    structure: Any
    avals: tuple[jaxpr.Aval, ...]


class FailedElsewhere(Exception):
    """An error that says that another process has ended its run with an error.

    Attributes:
      error: that error, for this process.
    """

    def __init__(self, error: BaseException):
        super().__init__(str(error))
        self.error = error


class Exchange:
    """The messages of one program between its processes.

    Args:
      instance: this process, among those that run the program.
      outfeeds: its outfeeds, in an order that is the same in all processes.
      replicas: the number of replicas of the program.
    """

    def __init__(self, instance: Instance, outfeeds: Sequence[SentOutfeed], replicas: int):
        self.here, self.sent, self.replicas = instance.index, tuple(outfeeds), replicas
        self.others = [process for process in range(instance.count) if process != self.here]
        self.wire: Wire = get_wire()

    def begin_exchange_run(self, interrupts: Interrupts) -> ExchangeRun:
        """Begins a run of the program; all processes begin theirs in the same order."""
        return ExchangeRun(self, next(_runs), interrupts)


class ExchangeRun:
    """The messages of one run; used in a `with`, so that other processes learn how it ends."""

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
        self._copies = {sent.queue: OutfeedRecorder(sent.queue) for sent in exchange.sent}
        end_structs = [
            self._local_struct((SEAL_BYTES + _COUNT.itemsize * (1 + len(exchange.sent)),), np.uint8)
        ]
        self._ends: dict[int, Any] = {
            process: self._wire.request_arrays(process, ("end", number, self._here), end_structs)[0]
            for process in exchange.others
        }

    # --- while it runs --------------------------------------------------------------------------

    def send_arrays(self, channel: int, arrays: Sequence[jax.Array]) -> None:
        """Offers arrays to the process at the other end of a channel, without waiting for it."""
        self._wire.offer_arrays(
            self._next_message_key(channel), jax.device_put(arrays, self._device)
        )

    def receive_arrays(
        self, process: int, channel: int, structs: Sequence[jax.ShapeDtypeStruct]
    ) -> list[jax.Array]:
        """Waits for arrays that another process has sent to this one.

        Raises:
          FailedElsewhere: they will not come.
        """
        self._request_arrays(process, channel, structs, at_least=1)
        arrays = self._asked[channel].popleft()
        self._wait_for_arrays(arrays, process)
        return arrays

    def announce_receiving_arrays(
        self, process: int, channel: int, structs: Sequence[jax.ShapeDtypeStruct], count: int
    ) -> None:
        """Announces so many calls of `receive_arrays`, so that arrays may come ahead."""
        self._expected[channel] += count
        self._request_arrays(process, channel, structs)

    def _request_arrays(
        self,
        process: int,
        channel: int,
        structs: Sequence[jax.ShapeDtypeStruct],
        at_least: int = 0,
    ) -> None:
        """Requests the next arrays, and some of those expected after them."""
        requests = self._asked[channel]
        local_structs = [self._local_struct(struct.shape, struct.dtype) for struct in structs]
        while len(requests) < at_least or (len(requests) < _AHEAD and self._expected[channel]):
            self._expected[channel] -= bool(self._expected[channel])
            requests.append(
                self._wire.request_arrays(process, self._next_message_key(channel), local_structs)
            )

    def recorder_of_outfeed(self, queue: Outfeed) -> OutfeedRecorder:
        """Returns the recorder of an outfeed, which remembers elements for other processes."""
        return self._copies[queue]

    def _next_message_key(self, channel: int) -> tuple[object, ...]:
        self._count[channel] += 1
        return self._number, channel, self._count[channel]

    def _local_struct(self, shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=self._device)

    # --- waiting --------------------------------------------------------------------------------

    def _wait_for_arrays(self, arrays: Sequence[Any], process: int) -> None:
        """Waits for arrays of another process, unless any process has failed meanwhile."""
        pause = _SHORTEST_PAUSE
        with self._interrupts.handle_interrupts_immediately():
            while not all(array.is_ready() for array in arrays):
                self._raise_failures()
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        try:
            jax.block_until_ready(arrays)
        except RuntimeError as error:
            raise self._reason_for_missing_arrays(process, error) from error

    def _raise_failures(self) -> None:
        if self._has_ended:
            return  # elements that others sent to outfeeds are taken in any case
        for process, end in self._ends.items():
            if end.is_ready():
                self._raise_failure_of_process(process)

    def _raise_failure_of_process(self, process: int) -> None:
        """Raises the error that another process has ended with, if any."""
        if process not in self._failures:
            self._failures[process] = self._read_failure(process)
        failure = self._failures[process]
        if failure is not None:
            raise failure

    def _read_failure(self, process: int) -> FailedElsewhere | None:
        try:
            error_bytes, *_ = self._read_end_of_process(process)
            if not error_bytes:
                return None
            if not 0 < error_bytes <= MOST_BYTES:
                raise NoDataError(f"an error of {error_bytes} bytes")
            key = ("error", self._number, self._here)
            (data,) = self._wire.request_arrays(
                process, key, [self._local_struct((SEAL_BYTES + error_bytes,), np.uint8)]
            )
            error = decode_error(self._read_sealed_message(process, "error", data))
        except RuntimeError as error:
            return FailedElsewhere(_make_lost_process_error(process, error))
        except ForgedMessageError:
            return FailedElsewhere(_make_forgery_error(process))
        except NoDataError as problem:
            message = f"instance {process} ended its run, and what it says of that is {problem}"
            return FailedElsewhere(DistributionError(message))
        error.add_note(f"This was raised in instance {process}.")
        return FailedElsewhere(error)

    def _read_end_of_process(self, process: int) -> list[int]:
        """Returns the size of another process's error, 0 without one, and its outfeeds' counts."""
        content = self._read_sealed_message(process, "end", self._ends[process])
        return np.frombuffer(content, _COUNT).tolist()

    def _read_sealed_message(self, process: int, kind: str, message: object) -> bytes:
        address = (kind, self._number, process, self._here)
        return open_sealed_message(self._wire.key, address, np.asarray(message).tobytes())

    def _seal_message(self, process: int, kind: str, content: bytes) -> np.ndarray:
        address = (kind, self._number, self._here, process)
        return np.frombuffer(seal_message(self._wire.key, address, content), np.uint8)

    def _reason_for_missing_arrays(self, process: int, error: RuntimeError) -> FailedElsewhere:
        """Returns the reason why an array has not come: its process's error, if there is one."""
        deadline = time.monotonic() + _REASON_SECONDS
        while time.monotonic() < deadline and not self._ends[process].is_ready():
            time.sleep(_LONGEST_PAUSE)
        try:
            self._raise_failures()
        except FailedElsewhere as reason:
            return reason
        return FailedElsewhere(_make_lost_process_error(process, error))

    # --- the end --------------------------------------------------------------------------------

    def __enter__(self) -> ExchangeRun:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end_exchange_run(error)
        if isinstance(error, FailedElsewhere):
            raise error.error from None

    def end_exchange_run(self, error: BaseException | None) -> None:
        """Ends the run here, once; waits for the others, and takes their outfeeds' elements.

        Args:
          error: the error that ends it; None if this process succeeded.

        Raises:
          FailedElsewhere: this process succeeded, and another did not.
        """
        if self._has_ended:
            return
        self._has_ended = True
        if error is None or isinstance(error, FailedElsewhere):
            self._send_end(b"")
        else:
            self._send_end(encode_error(error, self._here))
        failures: list[FailedElsewhere] = []
        for process in self._exchange.others:
            try:
                self._wait_for_arrays([self._ends[process]], process)
                self._collect_outfeeds(process)
                self._raise_failure_of_process(process)
            except FailedElsewhere as failure:
                failures.append(failure)
        if error is None and failures:
            raise failures[0]

    def _send_end(self, error: bytes) -> None:
        """Sends the end, and this process's outfeed elements, to the other processes."""
        recorded_elements = [
            self._copies[sent.queue].concatenate_elements() for sent in self._exchange.sent
        ]
        counts = np.array(
            [len(error), *(count for count, _ in recorded_elements)], _COUNT
        ).tobytes()
        for process in self._exchange.others:
            self._offer_arrays(
                ("end", self._number, process), [self._seal_message(process, "end", counts)]
            )
            if error:
                message = self._seal_message(process, "error", error)
                self._offer_arrays(("error", self._number, process), [message])
            for number, (count, leaves) in enumerate(recorded_elements):
                if count:
                    self._offer_arrays((self._number, "outfeed", number, process), leaves)

    def _offer_arrays(self, key: tuple[object, ...], arrays: Sequence[np.ndarray]) -> None:
        self._wire.offer_arrays(key, jax.device_put(list(arrays), self._device))

    def _collect_outfeeds(self, process: int) -> None:
        """Puts the elements that another process sent into this process's outfeeds."""
        try:
            _, *counts = self._read_end_of_process(process)
        except ForgedMessageError:
            raise FailedElsewhere(_make_forgery_error(process)) from None
        replicas = self._exchange.replicas
        for number, (sent, count) in enumerate(zip(self._exchange.sent, counts, strict=True)):
            if not count:
                continue
            leading_shape = (count,) if replicas == 1 else (count, replicas)
            structs = [
                self._local_struct((*leading_shape, *aval.shape), aval.dtype) for aval in sent.avals
            ]
            arrays = self._wire.request_arrays(
                process, (self._number, "outfeed", number, self._here), structs
            )
            self._wait_for_arrays(arrays, process)
            sent.queue.collect(sent.structure, [np.asarray(x) for x in arrays], replicas, count)


class OutfeedRecorder:
    """An outfeed that remembers the elements of one run for other processes."""

    def __init__(self, queue: Outfeed):
        self._queue = queue
        self._blocks: list[tuple[int, list[np.ndarray]]] = []

    @property
    def name(self) -> str:
        """The name of the outfeed."""
        return self._queue.name

    def collect(
        self, structure: object, arrays: Sequence[np.ndarray], replicas: int, count: int
    ) -> None:
        """Takes consecutive elements, as an outfeed does."""
        self._queue.collect(structure, arrays, replicas, count)
        if self._queue.keeps_last:
            self._blocks.clear()
        self._blocks.append((count, list(arrays)))

    def concatenate_elements(self) -> tuple[int, list[np.ndarray]]:
        """Returns how many elements there were, and each leaf of all of them."""
        leaves = zip(*(arrays for _, arrays in self._blocks), strict=True)
        return sum(count for count, _ in self._blocks), [np.concatenate(leaf) for leaf in leaves]


def _make_lost_process_error(process: int, error: RuntimeError) -> DistributionError:
    return DistributionError(f"instance {process} does not answer any more: {error}")


def _make_forgery_error(process: int) -> DistributionError:
    return DistributionError(
        f"a message in the name of instance {process} was not sent by this program: it is not "
        "sealed with its key",
        fix="look for who else reaches these machines; start all instances by one ipurun",
    )
