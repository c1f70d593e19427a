"""Batches on their way from Keras's data adapters to an infeed, in series of one shape."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator

import jax
import numpy as np

from ipujax.ground import PyTree
from ipujax.keras import random_states
from ipujax.keras.random_states import RandomState

Element = dict[str, PyTree]


class Batches:
    """An iterator over a data set's batches that an infeed may read ahead.

    A program takes batches of one form. Consecutive batches of one form are a `Series`; a smaller
    last batch is a series of its own.

    Args:
      batches: Keras's iterator over batches.
      per_epoch: the number of batches in an epoch; no series goes beyond, so that reading ahead
        takes nothing from the next epoch. None where an epoch ends with the data.
      count: the number of batches, all of one form but for an incomplete last one; None if unknown.
      incomplete: the number of examples in the last batch, if it has fewer than the others.

    Attributes:
      used: how many batches the device has consumed.
      random: the random generators' state when the first batch was read; None before.
    """

    def __init__(
        self,
        batches: Iterator[PyTree],
        per_epoch: int | None = None,
        count: int | None = None,
        incomplete: int | None = None,
    ):
        self._batches, self._per_epoch = iter(batches), per_epoch
        self.count, self.incomplete = count, incomplete
        self._taken = self._behind = 0
        self._waiting: list[PyTree] = []
        self._series: Series | None = None
        self.used = 0
        self.random: RandomState | None = None

    def skip_batches(self, count: int, random: RandomState | None) -> None:
        """Skips the batches that another process's device has consumed already.

        Args:
          count: how many batches.
          random: the state of the random generators with which the batches are drawn.
        """
        if random is not None:
            random_states.restore_generators(random)
        for _ in itertools.islice(self, count):
            pass
        self.used = self._behind = count

    def is_at_end(self) -> bool:
        """Returns whether there is no further batch."""
        return not self._fetch_waiting_batch()

    def __iter__(self) -> Iterator[PyTree]:
        return self

    def __next__(self) -> PyTree:
        """Returns the next batch; Keras builds models with it."""
        if not self._fetch_waiting_batch():
            raise StopIteration
        batch = self._waiting.pop()
        self._taken += 1
        return batch

    def peek_batch(self) -> PyTree:
        """Returns the next batch without consuming it.

        Raises:
          StopIteration: the data has ended.
        """
        if not self._fetch_waiting_batch():
            raise StopIteration
        return self._waiting[0]

    def next_series(self) -> Series | None:
        """Returns the series of batches that comes next; None at the end of the data."""
        if self._series is None or self._series.is_read:
            self._behind += self._series.used if self._series else 0
            self._series = (
                Series(self._iterate_one_form(), self._next_series_length())
                if self._fetch_waiting_batch()
                else None
            )
        return self._series

    def next_series_of_known_length(self, max_batches: int) -> Series | None:
        """Returns the next series, reading it in advance where the data set has no length."""
        if self.count is not None:
            return self.next_series()
        batches_read = (
            list(itertools.islice(self._iterate_one_form(), max_batches))
            if self._fetch_waiting_batch()
            else []
        )
        return Series(iter(batches_read), len(batches_read)) if batches_read else None

    def _next_series_length(self) -> int | None:
        """Returns the length of the next series; an incomplete batch is a series of its own."""
        if self.count is None:
            return None
        remaining = self.count - self._behind
        return remaining - 1 if self.incomplete and remaining > 1 else remaining

    def _fetch_waiting_batch(self) -> bool:
        if not self._waiting:
            if self.random is None:
                self.random = random_states.capture_generators()
            batch = next(self._batches, self)
            if batch is self:
                return False
            self._waiting.append(batch)
        return True

    def _iterate_one_form(self) -> Iterator[Element]:
        """Yields the batches until the data, the epoch or the form ends."""
        form = None
        while self._fetch_waiting_batch():
            next_form = structure_and_shapes_of(self._waiting[0])
            if form not in (None, next_form):
                return
            form = next_form
            yield {"batch": next(self)}
            if self._per_epoch and self._taken % self._per_epoch == 0:
                return


class Series:
    """Batches of one form, as the elements of an infeed.

    Args:
      elements: elements with one argument, `batch`: by name, as a batch that is a dict would
        otherwise become arguments itself.
      length: the number of batches; None if unknown.

    Attributes:
      length: the number of batches; None if unknown.
      used: how many batches the device has consumed.
    """

    def __init__(self, elements: Iterator[Element], length: int | None = None):
        self._elements, self.length = elements, length
        self._read, self._ended = 0, False
        self.used = 0

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        # A batch after the last one belongs to the next series, and must not be read by this one.
        element = None if self._read == self.length else next(self._elements, None)
        if element is None:
            self._ended = True
            raise StopIteration
        self._read += 1
        return element

    @property
    def is_read(self) -> bool:
        """True if the device has consumed all batches of the series."""
        return self.used == (self._read if self._ended else self.length)

    def count_unused(self, max_batches: int) -> int:
        """Returns how many batches the device can still consume, of a series of known length."""
        return min(max_batches, (self.length or 0) - self.used)


def structure_and_shapes_of(batch: PyTree) -> Hashable:
    """Returns the structure, shapes and dtypes of a batch."""
    leaves, structure = jax.tree.flatten(batch)
    return structure, tuple(
        (leaf.shape, leaf.dtype)
        if isinstance(leaf, np.ndarray)
        else (np.shape(leaf), getattr(leaf, "dtype", type(leaf)))
        for leaf in leaves
    )
