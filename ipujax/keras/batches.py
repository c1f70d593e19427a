"""Batches on their way from Keras's data adapters to an infeed."""

from __future__ import annotations

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
    """

    def __init__(self, batches: Iterator[Any], per_epoch: int | None = None):
        self._batches, self._per_epoch = iter(batches), per_epoch
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

    def series(self) -> Series | None:
        """The batches that come next; None at the end of the data."""
        if self._series is None or self._series.is_read:
            self._series = Series(self) if self._peek() else None
        return self._series

    def _peek(self) -> bool:
        if not self._waiting:
            batch = next(self._batches, self)
            if batch is self:
                return False
            self._waiting.append(batch)
        return True

    def next_of(self, form: Hashable | None) -> Any:
        """The next batch of a form (None for any).

        Raises:
          StopIteration: there is none: the data, the epoch or the series has ended.
        """
        at_end = self._per_epoch and self._taken and self._taken % self._per_epoch == 0
        if form is not None and at_end:
            raise StopIteration
        if not self._peek() or form not in (None, form_of(self._waiting[0])):
            raise StopIteration
        return next(self)


class Series:
    """Batches of one form, as the elements of an infeed: each is one argument.

    Attributes:
      form: theirs.
      used: how many of them the device has had.
    """

    def __init__(self, batches: Batches):
        self._batches, self._read, self._ended = batches, 0, False
        self.form: Hashable = None
        self.used = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> tuple[Any]:
        try:
            batch = self._batches.next_of(self.form)
        except StopIteration:
            self._ended = True
            raise
        if self.form is None:
            self.form = form_of(batch)
        self._read += 1
        return (batch,)

    @property
    def is_read(self) -> bool:
        """Whether the device has had all of it."""
        return self._ended and self.used == self._read


def form_of(batch: Any) -> Hashable:
    """Structure, shapes and dtypes of a batch."""
    leaves, structure = jax.tree.flatten(batch)
    return structure, tuple((np.shape(x), getattr(x, "dtype", type(x))) for x in leaves)
