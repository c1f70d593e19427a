"""The infeeds of a program: one infeed for all data sets that have elements of one form."""

from __future__ import annotations

import dataclasses as dc
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeAlias

import jax

from ipujax.driver import Executable
from ipujax.ground import OutOfRangeError, PyTree
from ipujax.host import (
    IPUInfeedQueue,
    IPUOutfeedQueue,
    convert_leaf_to_array,
    iterate_dataset,
    keys_to_words,
)
from ipujax.system import SYSTEM

Data: TypeAlias = Iterable[PyTree] | Callable[[], Iterable[PyTree]]
"""A data set as an infeed takes it: an iterable, or a function that returns one."""


@dc.dataclass(frozen=True)
class CompiledLoop:
    """A compiled program and its outfeed."""

    executable: Executable
    outfeed: IPUOutfeedQueue


class Feed:
    """An infeed that reads one data set after another, and the programs that use it.

    Attributes:
      queue: the infeed.
      iterator: the iterator that the infeed reads from.
      programs: the programs by the number of steps and the form of the arguments.
    """

    def __init__(
        self,
        iterator: Iterator[PyTree],
        elements: Iterator[PyTree],
        ordinal: int,
        depth: int | None,
    ):
        self.iterator, self._elements = iterator, elements
        self.queue = IPUInfeedQueue(
            lambda: self._elements, device_ordinal=ordinal, prefetch_depth=depth
        )
        self._rewind = self.queue.initializer
        self.programs: dict[Hashable, CompiledLoop] = {}

    def switch_data_set(self, iterator: Iterator[PyTree], elements: Iterator[PyTree]) -> None:
        """Switches the infeed to another data set."""
        self.iterator, self._elements = iterator, elements
        self._rewind()


class Feeds:
    """The infeeds of a program, by the form of their elements.

    A program is compiled with its infeed, so that the same infeed serves every data set that fits.

    Args:
      device: the device of the program.
      depth: the prefetch depth of the infeeds, as in `IPUInfeedQueue.prefetch_depth`.

    Attributes:
      latest: the feed that was asked for last.
    """

    def __init__(self, device: str, depth: int | None = None):
        self._device, self._depth = device, depth
        self._feeds: dict[Hashable, Feed] = {}
        self._generation = -1
        self.latest: Feed | None = None

    def feed_for_data(self, data: Data) -> Feed:
        """Returns the feed that gives the elements of a data set, from the first.

        The iterator that was read last continues where it is: none of its elements is lost.

        Raises:
          OutOfRangeError: a data set without elements.
        """
        if self._generation != SYSTEM.generation:  # an infeed is bound to a number of replicas
            self._feeds.clear()
            self.latest, self._generation = None, SYSTEM.generation
        iterator = iterate_dataset(data)
        if self.latest is not None and iterator is self.latest.iterator:
            return self.latest
        first_element = next(iterator, self)
        if first_element is self:
            raise OutOfRangeError(
                "the data set is empty: its elements' shapes are not known, so that nothing can "
                "be compiled",
                requested=1,
                available=0,
                fix="give at least one element; an iterator is used up once it has been read",
            )
        elements = itertools.chain([first_element], iterator)
        form = _structure_and_shapes(first_element)
        feed = self._feeds.get(form)
        if feed is None:
            ordinal = SYSTEM.device(self._device).ordinal
            feed = Feed(iterator, elements, ordinal, self._depth)
            self._feeds[form] = feed
        else:
            feed.switch_data_set(iterator, elements)
        self.latest = feed
        return feed


def _structure_and_shapes(element: PyTree) -> Hashable:
    leaves, structure = jax.tree.flatten(keys_to_words(element))
    return structure, tuple((a.shape, a.dtype) for a in map(convert_leaf_to_array, leaves))
