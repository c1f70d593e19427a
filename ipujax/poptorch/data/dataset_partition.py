"""The part of a data set that one process of several reads."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset

from ipujax.ground import PyTree
from ipujax.poptorch.poptorch_checks import check

ADVICE_FOR_FEW_ROWS = (
    "make a combined batch smaller, by fewer deviceIterations, less gradientAccumulation or a "
    "smaller batch_size, or give more data"
)
"""How a data set comes to have a combined batch; a smaller one is refused by the model."""


class Partition(Dataset[Any]):
    """A process's block of a data set: process 0 has the first block, process 1 the next.

    All processes read equally many combined batches, or they would wait for one another for ever.
    The remaining elements are read by none, and differ from epoch to epoch where data is shuffled.
    With drop_last=False they are divided as evenly as possible.

    Args:
      dataset: the whole data set, with a length.
      step: the combined batch's size.
      process: the id of this process, and the number of processes.
      drop_last: whether elements that make no combined batch for each process are dropped.
      seed: has all processes see the whole data set in the same random order, another in each
        epoch; None for its own order.
    """

    def __init__(
        self,
        dataset: Any,
        step: int,
        process: tuple[int, int],
        *,
        drop_last: bool,
        seed: int | None,
    ):
        rank, processes = process
        rows = len(dataset)
        if drop_last:
            self._length = step * (rows // (step * processes))
            if not self._length:
                raise check.value_error(
                    f"a data set of {rows} elements is less than one combined batch of {step} for "
                    f"each of {processes} processes",
                    f"use fewer processes, or {ADVICE_FOR_FEW_ROWS}",
                )
            self._offset = rank * self._length
        else:
            rows_per_process, extra_rows = divmod(rows, processes)
            self._length = rows_per_process + (rank < extra_rows)
            self._offset = rank * rows_per_process + min(rank, extra_rows)
        self._dataset = dataset
        self._generator = None if seed is None else torch.Generator().manual_seed(seed)
        # In shared memory: workers, which live on, see the next epoch's order as well.
        self._order = torch.arange(rows).share_memory_()

    def start_epoch(self) -> None:
        """Shuffles the order of the elements, if the partition has a seed."""
        if self._generator is not None:
            self._order.copy_(torch.randperm(len(self._order), generator=self._generator))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> PyTree:
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._dataset[int(self._order[index + self._offset])]
