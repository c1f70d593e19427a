"""The part of a data set that one process of several reads."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset

from ipujax.poptorch.checks import check


class Partition(Dataset[Any]):
    """A block of a data set: process 0 has the first, process 1 the next, and so on.

    All processes read equally many combined batches, or they would wait for one another for ever,
    and what is left over is read by none; each epoch's order leaves others out. Only where nobody
    drops a rest, it is shared out as evenly as can be.

    Args:
      dataset: all of it, with a length.
      step: the combined batch's size.
      process: which process this is, of how many.
      drop_last: whether rests are dropped.
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
                raise check.refuse(
                    f"a data set of {rows} elements is less than one combined batch of {step} for "
                    f"each of {processes} processes",
                    "use fewer processes or smaller batches, or drop_last=False",
                )
            self._offset = rank * self._length
        else:
            each, more = divmod(rows, processes)
            self._length = each + (rank < more)
            self._offset = rank * each + min(rank, more)
        self._dataset = dataset
        self._generator = None if seed is None else torch.Generator().manual_seed(seed)
        # In shared memory: workers, which live on, see the next epoch's order as well.
        self._order = torch.arange(rows).share_memory_()

    def start_epoch(self) -> None:
        """Shuffles, where a seed was given."""
        if self._generator is not None:
            self._order.copy_(torch.randperm(len(self._order), generator=self._generator))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._dataset[int(self._order[index + self._offset])]
