"""Data sets made from other data sets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

from ipujax.ground import Checks, ConfigTypeError, FeedError, PyTree
from ipujax.host import iterate_dataset

_check = Checks(ConfigTypeError, FeedError)

__all__ = ["BufferDataset"]


def __dir__() -> list[str]:
    return __all__


@_check.guard
class BufferDataset:
    """A data set with a multiple of `buffer_size` elements: those of another, the rest dropped.

    Elements are handed on unchanged, once a whole buffer of them has been read. Iterating again
    starts again, if the input can.

    Args:
      input_dataset: an iterable of elements, or a zero-argument callable that gives one.
      buffer_size: how many elements are made available at a time, at least 1.

    Raises:
      ConfigTypeError: (a `TypeError`) if the input is no data set, or the size no integer.
      FeedError: (a `ValueError`) if the size is less than 1.
    """

    def __init__(
        self, input_dataset: Iterable[object] | Callable[[], Iterable[object]], buffer_size: int
    ) -> None:
        if not (isinstance(input_dataset, Iterable) or callable(input_dataset)):
            raise ConfigTypeError(
                f"input_dataset is {input_dataset!r}, but must be an iterable or a zero-argument "
                "callable that gives one"
            )
        self._input = input_dataset
        self._size = _check.require_integer(buffer_size, "buffer_size", 1)

    def __iter__(self) -> Iterator[PyTree]:
        elements = iterate_dataset(self._input)
        while len(buffer := list(itertools.islice(elements, self._size))) == self._size:
            yield from buffer
