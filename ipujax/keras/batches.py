"""Batches on their way from Keras's data adapters to an infeed."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from typing import Any

import jax
import numpy as np


class Batches:
    """An iterator over a data set's batches that an infeed may read ahead.

    A program takes batches of one form. Those that follow one another in the same form are a
    `Series`; a last, smaller batch is a series of its own.

    Args:
      batches: of Keras.
      per_epoch: how many of them an epoch may take; no series goes beyond, so that reading ahead
        takes nothing from the next epoch. None where an epoch ends with the data.
      count: how many there are, where that is known.
      incomplete: examples in the last one, if it has fewer than the others.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        per_epoch: int | None = None,
        count: int | None = None,
        incomplete: int | None = None,
    ):
        self._batches, self._per_epoch = iter(batches), per_epoch
        self.count, self.incomplete = count, incomplete
        self._taken = 0
        self._waiting: list[Any] = []
        self._series: Series | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """The next batch; for Keras, which builds models with it."""
        batch = self._waiting.pop() if self._waiting else next(self._batches)
        self._taken += 1
        return batch

    def first(self) -> Any:
        """The next batch, which stays.

        Raises:
          StopIteration: the data has ended.
        """
        if not self._peek():
            raise StopIteration
        return self._waiting[0]

    def series(self) -> Series | None:
        """The batches that come next; None at the end of the data."""
        if self._series is None or self._series.is_read:
            self._series = Series(self._of_one_form()) if self._peek() else None
        return self._series

    def counted(self, most: int) -> Series | None:
        """As `series`, of so many batches that are known to be there, at most."""
        if self.count is not None:
            series = self.series()
            if series is not None:
                series.length = min(most, self.count - series.used)
            return series
        read = list(itertools.islice(self._of_one_form(), most)) if self._peek() else []
        return Series(iter(read), len(read)) if read else None

    def _peek(self) -> bool:
        if not self._waiting:
            batch = next(self._batches, self)
            if batch is self:
                return False
            self._waiting.append(batch)
        return True

    def _of_one_form(self) -> Iterator[tuple[Any]]:
        """The batches until the data, the epoch or the form ends; each is one argument."""
        form = None
        while self._peek():
            found = form_of(self._waiting[0])
            if form not in (None, found):
                return
            form = found
            yield (next(self),)
            if self._per_epoch and self._taken % self._per_epoch == 0:
                return


class Series:
    """Batches of one form, as the elements of an infeed.

    Args:
      elements: each is one argument.
      length: how many there are, where that is known.

    Attributes:
      length: as given.
      used: how many of them the device has had.
    """

    def __init__(self, elements: Iterator[tuple[Any]], length: int | None = None):
        self._elements, self.length = elements, length
        self._read, self._ended = 0, False
        self.used = 0

    def __iter__(self) -> Iterator[tuple[Any]]:
        return self

    def __next__(self) -> tuple[Any]:
        element = next(self._elements, None)
        if element is None:
            self._ended = True
            raise StopIteration
        self._read += 1
        return element

    @property
    def is_read(self) -> bool:
        """Whether the device has had all of it."""
        return self._ended and self.used == self._read


def form_of(batch: Any) -> Hashable:
    """Structure, shapes and dtypes of a batch."""
    leaves, structure = jax.tree.flatten(batch)
    return structure, tuple(
        (x.shape, x.dtype)
        if isinstance(x, np.ndarray)
        else (np.shape(x), getattr(x, "dtype", type(x)))
        for x in leaves
    )
