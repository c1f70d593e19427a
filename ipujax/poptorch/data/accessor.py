"""The iterator `poptorch.AsynchronousDataAccessor`, which reads a data set ahead in a thread."""

from __future__ import annotations

import copy
import os
import traceback
import weakref
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch.utils.data

from ipujax.ground import PopTorchError, PyTree
from ipujax.poptorch.data import loader_batches
from ipujax.poptorch.data.read_ahead import ReadAhead, Ring
from ipujax.poptorch.enums import SharingStrategy
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_log import logger

_MEND = "mend the data set; torch.utils.data.DataLoader alone shows the same"


@check.guard
class AsynchronousDataAccessor:
    """A reader of a data set in a thread, ahead of the device that works on earlier elements.

    The original had a process and shared memory for it. Elements are the same in the same order,
    but stay valid when the next one is read; and a data set need not be a flat list of tensors.

    Args:
      dataset: anything that can be iterated over, such as a `DataLoader` of the mode `Sync`.
      buffer_size: how many elements the thread may be ahead.
      miss_sleep_time_in_ms: nothing here: a thread whose buffer is full is woken when an element
        is taken.
      load_indefinitely: whether the next epoch is begun when the last one has been read.
      early_preload: whether more than the first element is read before an iteration begins.
      sharing_strategy: nothing here: a thread sees the data set as it is.
      rebatched_size: the number of rows of each element, whatever the data set's elements have; a
        remainder is dropped, unless a `DataLoader` with drop_last=False is read.

    Raises:
      Error: the data set is empty, its first element cannot be read, or an argument does not fit.
    """

    def __init__(
        self,
        dataset: Any,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: int | None = None,
    ):
        self._worker: ReadAhead | None = None
        check.require_number(miss_sleep_time_in_ms, "miss_sleep_time_in_ms", "give milliseconds")
        check.require_instance(sharing_strategy, SharingStrategy, "sharing_strategy")
        if rebatched_size is not None:
            check.require_integer(rebatched_size, "rebatched_size", at_least=2)
        if getattr(dataset, "_accessor", None) is not None:
            raise check.value_error(
                "The DataLoader already uses an AsynchronousDataAccessor internally",
                "use the loader itself, or make it with mode=poptorch.DataLoaderMode.Sync",
            )
        self._dataset = _copy_loader(dataset)
        self.rebatched_size = rebatched_size
        self._load_indefinitely = check.require_flag(load_indefinitely, "load_indefinitely")
        self._is_started = check.require_flag(early_preload, "early_preload")
        self._worker = ReadAhead(check.require_integer(buffer_size, "buffer_size", at_least=1))
        logger.debug("AsynchronousDataAccessor worker process: %d (a thread of it)", os.getpid())
        # Whether an iteration has begun to use the ring's elements, and whether it has ended.
        self._is_used, self._is_over = False, True
        self._ring = self._start_reading_epoch(is_started=self._is_started)
        self._check_first_element()

    def _start_reading_epoch(self, *, is_started: bool) -> Ring:
        """Starts reading the next epoch in the thread."""
        if self._worker is None:
            raise check.value_error(
                "this AsynchronousDataAccessor was terminated", "make another one to read on"
            )
        self._is_used = False
        return self._worker.start_reading(self._iterate_batches, is_started=is_started)

    def _iterate_batches(self) -> Iterable[PyTree]:
        # A loader that holds this accessor would ask it again.
        iterate_unbuffered = getattr(self._dataset, "_own_batches", partial(iter, self._dataset))
        elements: Iterable[Any] = iterate_unbuffered()
        if self.rebatched_size is None:
            return elements
        drop_last = getattr(self._dataset, "rebatched_drop_last", True)
        return loader_batches.rebatch(elements, self.rebatched_size, drop_last=drop_last)

    def _check_first_element(self) -> None:
        """Raises an error if the data set has no first element, or it cannot be read."""
        if self._ring.wait_for_element():
            return
        self.terminate()
        error = self._ring.take_error()
        if error is None:
            raise check.value_error("The Dataset is empty", "give one with an element at least")
        text = _format_error(error)
        logger.error("%s", text)
        raise PopTorchError(
            "AsynchronousDataAccessor worker thread failed to start: reading the first element "
            f"raised\n{text}",
            fix=_MEND,
        ) from error

    def terminate(self) -> None:
        """Ends the thread; what it has read is lost. May be called again."""
        if self._worker is not None:
            self._worker.stop_reading()
            self._worker = None

    def __del__(self) -> None:
        if "_worker" in vars(self):
            self.terminate()

    def __len__(self) -> int:
        length = len(self._dataset)
        # A loader that holds this accessor knows of the other size of its batches.
        is_inside = getattr(self._dataset, "_accessor", None) is self
        if self.rebatched_size is None or is_inside:
            return length
        return length * (getattr(self._dataset, "batch_size", None) or 1) // self.rebatched_size

    def __iter__(self) -> AsynchronousDataAccessor:
        if self._is_used or self._worker is None:
            self._ring = self._start_reading_epoch(is_started=True)
        self._ring.let_reading_continue()
        self._is_over = False
        return self

    def __next__(self) -> PyTree:
        if self._is_over:
            raise StopIteration
        self._is_used = True
        if not self._ring.wait_for_element():
            self._end_epoch()
            raise StopIteration
        element = self._ring.take_element()
        if self._ring.is_exhausted:
            self._end_epoch()
        return element

    def _end_epoch(self) -> None:
        """Ends the epoch, and starts reading the next one if the accessor loads indefinitely."""
        self._is_over = True
        error = self._ring.take_error()
        if error is not None:
            raise PopTorchError(
                f"An error occurred in the data fetcher:\n{_format_error(error)}", fix=_MEND
            ) from error
        if self._load_indefinitely and self._worker is not None:
            self._ring = self._start_reading_epoch(is_started=True)


def _copy_loader(dataset: object) -> Any:
    """Returns a copy of a data loader, so that its user can iterate over it at the same time.

    A loader's persistent workers serve only one iteration; a copy has workers of its own. Other
    data sets are returned as they are.
    """
    is_inside = type(dataset) in weakref.ProxyTypes  # a loader that reads by this accessor alone
    if is_inside or not isinstance(dataset, torch.utils.data.DataLoader):
        return dataset
    copied = copy.copy(dataset)
    vars(copied)["_iterator"] = None
    return copied


def _format_error(error: BaseException) -> str:
    """Formats an error with its traceback, including that of a worker process.

    The traceback's frames are emptied: torch's hold the error itself, and its workers. They would
    be freed by the garbage collector, which lets go of their queues before it ends them.
    """
    text = "".join(traceback.format_exception(error)).strip()
    traceback.clear_frames(error.__traceback__)
    return text
