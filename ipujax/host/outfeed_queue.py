"""Outfeeds: values sent from inside compiled code, collected on the host while it runs."""

from __future__ import annotations

import collections
import dataclasses as dc
import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipujax.ground import FeedError, PyTree, UnusedOutfeedError, events
from ipujax.host import trace_frames
from ipujax.host.keys import keys_to_words, words_to_keys
from ipujax.host.queues import Queue, check, warn_of_deprecated_argument
from ipujax.host.utilities import use_synthetic_data_for
from ipujax.system import SyntheticDataCategory
from lowering import dtype_name, is_numeric_dtype, jaxpr, limit_dir_to, ops


class IPUOutfeedMode(enum.Enum):
    """The elements that an outfeed keeps: all that are enqueued, or the last one."""

    ALL = "all"
    LAST = "get_last"


@check.guard
@limit_dir_to("deleter", "dequeue", "enqueue", "enqueued", "name", "outfeed_mode")
class IPUOutfeedQueue(Queue):
    """Collects what compiled code enqueues.

    Args:
      feed_name: a name of one's own (deprecated; one is generated).
      outfeed_mode: an `IPUOutfeedMode`; ALL by default.
      device_ordinal: the device of the programs that use the queue.
      replication_factor: deprecated; it follows from the program.
      io_batch_size: deprecated: how many elements the original sent at a time. Here each is sent
        when it is there, and what is dequeued is the same.
      buffer_depth: how many elements the original's stream had room for. Here the queue holds all
        that the host has not read yet, whatever it is.
      optimise_latency: True or False; the original then copied elements in smaller parts. Here it
        changes nothing.

    Raises:
      FeedError: for arguments of a wrong type or value (a `ValueError`).

    Elements may be taken by `dequeue`, or by iterating, also from another thread while the
    program runs.
    """

    kind = "outfeed"

    def __init__(
        self,
        feed_name: str | None = None,
        outfeed_mode: IPUOutfeedMode | None = None,
        device_ordinal: int = 0,
        replication_factor: int | None = None,
        io_batch_size: int = 1,
        *,
        buffer_depth: int = 1,
        optimise_latency: bool = False,
    ):
        check.require_integer(buffer_depth, "buffer_depth", 1)
        check.require_flag(optimise_latency, "optimise_latency")
        mode = IPUOutfeedMode.ALL if outfeed_mode is None else outfeed_mode
        check.require_instance(
            mode, IPUOutfeedMode, "outfeed_mode", "an IPUOutfeedMode, ALL or LAST"
        )
        is_batched = check.require_integer(io_batch_size, "io_batch_size", 1) > 1
        warn_of_deprecated_argument(
            self,
            is_batched,
            "io_batch_size",
            "elements are sent one by one; accumulate in the loop, or with accumulate_outfeed in a "
            "pipeline",
        )
        replicated = replication_factor is not None
        warn_of_deprecated_argument(
            self, replicated, "replication_factor", "it follows from the program"
        )
        warn_of_deprecated_argument(self, feed_name is not None, "feed_name", "names are generated")
        super().__init__(feed_name, device_ordinal)
        self.outfeed_mode = mode
        self._blocks: collections.deque[_Block] = collections.deque()
        self._expected: _Form | None = None
        self._fresh = False  # whether there is an element that iterating has not yielded
        self.discards = False  # whether the latest program sends nothing: data is synthetic
        # Whether a run ends when its results are computed; otherwise the last result, of a loop
        # that keeps no other, may be an array of JAX's that a device is still computing.
        self.is_awaited = True

    # --- the original's interface ---------------------------------------------------------------

    @property
    def enqueued(self) -> bool:
        """True if the function being traced enqueues here; outside a trace, if any does."""
        frame = trace_frames.current_trace_frame()
        return self._expected is not None if frame is None else frame.enqueues_to(self)

    @property
    def deleter(self) -> Callable[[], None]:
        """A callable that releases the queue and what it holds."""
        return self._delete

    def enqueue(self, tensors: Any) -> None:
        """Sends a pytree of arrays from compiled code; at most one enqueue in a program.

        Under differentiation the values themselves are sent, once. Returns None, so that the
        original's habit of returning the operation from a loop body goes on working.
        """
        leaves, structure = jax.tree.flatten(keys_to_words(tensors))
        arrays = [self._require_sendable(leaf) for leaf in leaves]
        line = jaxpr.current_user_line()
        trace_frames.note_enqueue(self, line)
        self.record_element_form(structure, [jax.typeof(array) for array in arrays])
        ops.enqueue(self, arrays, structure)

    def _require_sendable(self, leaf: object) -> PyTree:
        array = jnp.asarray(leaf)
        if not is_numeric_dtype(array.dtype):
            raise FeedError(
                f"outfeed `{self.name}`: a {dtype_name(array)} cannot be sent to the host at "
                f"{jaxpr.current_user_line() or 'an unknown line'}; send numbers or keys"
            )
        return array

    def dequeue(self, wait_for_completion: bool = False) -> PyTree:
        """Returns the elements enqueued since the last call, as NumPy arrays.

        Args:
          wait_for_completion: first wait until no program that enqueues here is running.

        Returns:
          Mode ALL: each leaf as `[elements, (replicas,) *shape]`; the replicas' axis is there only
          if there are several. Mode LAST: the last element, `[(replicas,) *shape]`.

        Raises:
          UnusedOutfeedError: no traced function enqueues here; in mode LAST also when nothing has
            been enqueued yet, or synthetic data is used.
        """
        with events.span("dequeue", self.name):
            with self.changed:
                while wait_for_completion and self.running:
                    self.changed.wait()
                if self._expected is None:
                    raise UnusedOutfeedError(
                        f"outfeed `{self.name}` was dequeued, but no traced function enqueues to "
                        "it; call enqueue inside the compiled function, and run or lower that first"
                    )
                if self.keeps_last:
                    return self._last_element()
                blocks, self._blocks = self._blocks, collections.deque()
                self._fresh = False
            return _concatenate_blocks(blocks or [self._expected.make_zeros(0)])

    def __iter__(self) -> Iterator[PyTree]:
        """Yields one element after the other; waits for more while a program that enqueues runs.

        In mode LAST an element that has been yielded is still there for `dequeue`.
        """
        while True:
            with events.span("dequeue", self.name), self.changed:
                while not self._fresh and self.running:
                    self.changed.wait()
                if not self._fresh:
                    return
                element = self._take_next()
            yield element

    def _take_next(self) -> PyTree:
        """Takes the oldest element that has not been yielded."""
        block = self._blocks[0]
        element, remaining_block = block.split_first()
        if not self.keeps_last:
            self._blocks.popleft()
            self._blocks.extendleft([remaining_block] if remaining_block is not None else [])
        self._fresh = bool(self._blocks) and not self.keeps_last
        return element

    # --- collecting -----------------------------------------------------------------------------

    @property
    def keeps_last(self) -> bool:
        """True if only the last element is kept."""
        return self.outfeed_mode is IPUOutfeedMode.LAST

    def begin_run(self, replicas: int) -> None:
        """Starts a run of a program that enqueues here."""
        super().begin_run(replicas)
        with self.changed:
            self.discards = use_synthetic_data_for(SyntheticDataCategory.Outfeed)

    def record_element_form(self, structure: object, avals: Sequence[jaxpr.Aval]) -> None:
        """Records the structure and avals of the elements that a program enqueues."""
        self._expected = _Form(structure, avals)

    def expect(self, replicas: int) -> None:
        """Records the number of replicas of a program that enqueues here."""
        if self._expected is not None and replicas > 1:
            self._expected = dc.replace(self._expected, replicas=replicas)

    def collect(
        self, structure: object, arrays: Sequence[np.ndarray], replicas: int, count: int
    ) -> None:
        """Takes `count` consecutive elements, `[count, (replicas,) *shape]` for each leaf."""
        block = _Block(structure, list(arrays), replicas, count)
        if self.discards or not block.count:
            return
        with self.changed:
            if self.keeps_last:
                self._blocks.clear()
                block = block.keep_last_element()
            elif self._blocks and not self._blocks[-1].has_same_form(block):
                raise FeedError(
                    f"outfeed `{self.name}` holds elements like "
                    f"{self._blocks[-1].describe_element()} that were not dequeued, and now gets "
                    f"{block.describe_element()}; dequeue it before a program that enqueues "
                    "something else, or use two queues"
                )
            self._blocks.append(block)
            self._fresh = True
            self.changed.notify_all()

    def collect_uncomputed(self, structure: object, rows: Sequence[Any]) -> None:
        """Takes an element, `[1, *shape]` for each leaf, that a device may still be computing."""
        if not self.discards:
            with self.changed:
                self._blocks.clear()
                self._blocks.append(_Block(structure, list(rows), 1, 1))
                self._fresh = True
                self.changed.notify_all()

    def make_zero_results(self, count: int) -> PyTree:
        """Returns zeros as `dequeue` would give `count` elements; None if no program enqueues.

        For loops that send nothing, because synthetic data is used.
        """
        if self._expected is None:
            return None
        block = self._expected.make_zeros(count)
        return (
            block.keep_last_element().split_first()[0]
            if self.keeps_last
            else _concatenate_blocks([block])
        )

    def push(self, structure: object, leaves: Sequence[object], count: int | None) -> None:
        """Takes one element (or `count` stacked) from a program under plain `jax.jit`."""
        arrays = [np.asarray(leaf) for leaf in leaves]
        self.begin_run(1)
        try:
            stacked = [a if count is not None else a[None] for a in arrays]
            self.collect(structure, stacked, 1, 1 if count is None else count)
        finally:
            self.end_run()

    def _last_element(self) -> PyTree:
        if use_synthetic_data_for(SyntheticDataCategory.Outfeed):
            raise UnusedOutfeedError(
                f"outfeed `{self.name}`: mode LAST has nothing to give with synthetic data"
            )
        if not self._blocks:
            raise UnusedOutfeedError(
                f"outfeed `{self.name}`: trying to get the last value from an unused outfeed; run "
                "the program that enqueues to it first"
            )
        return self._blocks[-1].split_first()[0]

    def _delete(self) -> None:
        with self.changed:
            self.delete()
            self._blocks.clear()
            self._fresh = False


@dc.dataclass(frozen=True)
class _Form:
    """The structure, avals and replicas of the elements of an outfeed."""

    structure: Any
    avals: Sequence[jaxpr.Aval]
    replicas: int = 1

    def make_zeros(self, count: int) -> _Block:
        """Returns a block of zero elements of this form."""
        lead = (count,) if self.replicas == 1 else (count, self.replicas)
        arrays = [np.zeros((*lead, *aval.shape), aval.dtype) for aval in self.avals]
        return _Block(self.structure, arrays, self.replicas, count)


@dc.dataclass(frozen=True)
class _Block:
    """Consecutive elements of one structure, stacked."""

    structure: Any
    arrays: list[Any]
    replicas: int
    count: int

    def split_first(self) -> tuple[PyTree, _Block | None]:
        """Returns the first element, and a block of the others if there are any."""
        leaves = [
            array[0] if isinstance(array, np.ndarray) else lax.squeeze(array, [0])
            for array in self.arrays
        ]
        element = words_to_keys(jax.tree.unflatten(self.structure, leaves))
        if self.count == 1:
            return element, None
        remaining_arrays = [array[1:] for array in self.arrays]
        return element, _Block(self.structure, remaining_arrays, self.replicas, self.count - 1)

    def keep_last_element(self) -> _Block:
        """Returns a block of the last element alone."""
        last = [array[-1:].copy() for array in self.arrays]
        return _Block(self.structure, last, self.replicas, 1)

    def has_same_form(self, other_block: _Block) -> bool:
        """Returns whether two blocks can be dequeued together."""
        own_forms = [(a.shape[1:], a.dtype) for a in self.arrays]
        other_forms = [(a.shape[1:], a.dtype) for a in other_block.arrays]
        return (self.structure, self.replicas, own_forms) == (
            other_block.structure,
            other_block.replicas,
            other_forms,
        )

    def describe_element(self) -> str:
        """Describes the shapes and dtypes of one element."""
        return ", ".join(f"{a.dtype}{list(a.shape[1:])}" for a in self.arrays) or "nothing"


def _concatenate_blocks(blocks: Sequence[_Block]) -> PyTree:
    columns = zip(*(block.arrays for block in blocks), strict=True)
    leaves = [arrays[0] if len(arrays) == 1 else np.concatenate(arrays) for arrays in columns]
    return words_to_keys(jax.tree.unflatten(blocks[0].structure, leaves))
