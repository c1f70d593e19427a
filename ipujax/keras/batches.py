"""Batches on their way from Keras's data adapters to an infeed."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from typing import Any

import jax
import numpy as np

from ipujax.keras import random_states
from ipujax.keras.random_states import RandomState

Element = dict[str, Any]


class Batches:
    """An iterator over a data set's batches that an infeed may read ahead.

    A program takes batches of one form. Those that follow one another in the same form are a
    `Series`; a last, smaller batch is a series of its own.

    Args:
      batches: of Keras.
      per_epoch: how many of them an epoch may take; no series goes beyond, so that reading ahead
        takes nothing from the next epoch. None where an epoch ends with the data.
      count: how many there are, of one form but for an incomplete one, where that is known.
      incomplete: examples in the last one, if it has fewer than the others.

    Attributes:
      used: how many of them the device has had.
      random: the random generators' state when the first of them was read; None before.
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
        self._taken = self._behind = 0
        self._waiting: list[Any] = []
        self._series: Series | None = None
        self.used = 0
        self.random: RandomState | None = None

    def skip(self, count: int, random: RandomState | None) -> None:
        """Goes on where another process was, whose device has had so many of these batches.

        Args:
          count: how many.
          random: the state of the random generators with which they are drawn.
        """
        if random is not None:
            random_states.restore(random)
        for _ in itertools.islice(self, count):
            pass
        self.used = self._behind = count

    def is_at_end(self) -> bool:
        """Whether there is no further batch."""
        return not self._peek()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """The next batch; for Keras, which builds models with it."""
        if not self._peek():
            raise StopIteration
        batch = self._waiting.pop()
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
            self._behind += self._series.used if self._series else 0
            self._series = Series(self._of_one_form(), self._length()) if self._peek() else None
        return self._series

    def counted(self, most: int) -> Series | None:
        """As `series`, of batches that are known to be there; where none are, of so many."""
        if self.count is not None:
            return self.series()
        read = list(itertools.islice(self._of_one_form(), most)) if self._peek() else []
        return Series(iter(read), len(read)) if read else None

    def _length(self) -> int | None:
        """How many batches the next series has; an incomplete one is a series of its own."""
        if self.count is None:
            return None
        left = self.count - self._behind
        return left - 1 if self.incomplete and left > 1 else left

    def _peek(self) -> bool:
        if not self._waiting:
            if self.random is None:
                self.random = random_states.capture()
            batch = next(self._batches, self)
            if batch is self:
                return False
            self._waiting.append(batch)
        return True

    def _of_one_form(self) -> Iterator[Element]:
        """The batches until the data, the epoch or the form ends."""
        form = None
        while self._peek():
            found = form_of(self._waiting[0])
            if form not in (None, found):
                return
            form = found
            yield {"batch": next(self)}
            if self._per_epoch and self._taken % self._per_epoch == 0:
                return


class Series:
    """Batches of one form, as the elements of an infeed.

    Args:
      elements: each is one argument, `batch`: by name, as a batch that is a dict would otherwise
        become arguments itself.
      length: how many there are, where that is known.

    Attributes:
      length: as given.
      used: how many of them the device has had.
    """

    def __init__(self, elements: Iterator[Element], length: int | None = None):
        self._elements, self.length = elements, length
        self._read, self._ended = 0, False
        self.used = 0

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        # What follows the last one belongs to the next series, and must not be read by this one.
        element = None if self._read == self.length else next(self._elements, None)
        if element is None:
            self._ended = True
            raise StopIteration
        self._read += 1
        return element

    @property
    def is_read(self) -> bool:
        """Whether the device has had all of it."""
        return self.used == (self._read if self._ended else self.length)

    def left(self, most: int) -> int:
        """How many of so many the device has not had; of a series whose length is known."""
        return min(most, (self.length or 0) - self.used)


def form_of(batch: Any) -> Hashable:
    """Structure, shapes and dtypes of a batch."""
    leaves, structure = jax.tree.flatten(batch)
    return structure, tuple(
        (x.shape, x.dtype)
        if isinstance(x, np.ndarray)
        else (np.shape(x), getattr(x, "dtype", type(x)))
        for x in leaves
    )
