"""A data set, read element by element: every element has the first one's structure and shapes."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from ipujax.errors import FeedError
from lowering import avals, jaxpr

Leaves = list[np.ndarray]
"""One element, flattened."""


class Target(Protocol):
    """Where elements are stacked.

    Attributes:
      rows: one array per leaf, `[>= count, *shape]`.
      filled: how many rows hold an element; another thread may read it meanwhile.
      cancelled: whether another thread wants no more.
    """

    rows: list[np.ndarray]
    filled: int
    cancelled: bool


class Elements:
    """Reads a data set, and keeps what was read too early.

    Args:
      name: of the queue, for messages.
      dataset: an iterable of pytrees of arrays, or a callable that gives one.

    Attributes:
      read: how many elements came out of the data set so far.
    """

    def __init__(self, name: str, dataset: Any):
        self.name, self.read = name, 0
        self._dataset = dataset
        self._iterator: Iterator[Any] | None = None
        self._kept: collections.deque[Leaves] = collections.deque()
        self._ended = False
        self._error: BaseException | None = None
        self._structure: Any = None
        self._avals: list[Any] | None = None
        self._expected: list[tuple[tuple[int, ...], np.dtype]] = []
        self._given: list[np.dtype] = []

    @property
    def started(self) -> bool:
        """Whether the data set is being read."""
        return self._iterator is not None

    @property
    def avals(self) -> list[Any] | None:
        """Shape and dtype of each leaf, once an element has been read."""
        return self._avals

    @property
    def structure(self) -> Any:
        """The pytree structure of an element, once one has been read."""
        return self._structure

    def start(self) -> None:
        """Begins to read, if that has not happened yet."""
        if self._iterator is None:
            self._iterator = iterate(self._dataset)

    def stop(self) -> None:
        """Forgets the data set's position and all that was read ahead."""
        self._iterator, self._error, self._ended, self.read = None, None, False, 0
        self._kept.clear()

    def peek(self) -> BaseException | None:
        """Reads the first element, unless one has been read; gives what went wrong instead."""
        if self._structure is None and not self._ended:
            self._reading(self._read_first)
        return self._error

    def fill(self, target: Target, count: int) -> BaseException | None:
        """Writes `count` elements into a target's rows, as long as it is not cancelled.

        An element is copied when it is read: a data set may use the same buffer for the next.

        Returns:
          The data set's exception, if that is why there are fewer.
        """
        while self._kept and target.filled < count:
            for whole, leaf in zip(target.rows, self._kept.popleft(), strict=True):
                whole[target.filled] = leaf
            target.filled += 1
        if target.filled < count and not self._ended:
            self._reading(lambda: self._read_rows(target, count))
        return self._error if target.filled < count else None

    def give_back(self, wholes: Sequence[np.ndarray], start: int, stop: int) -> None:
        """Puts rows that were read and not used in front of what is read next."""
        for row in range(stop - 1, start - 1, -1):
            self._kept.appendleft([whole[row] for whole in wholes])

    def _reading(self, read: Callable[[], None]) -> None:
        """Reads from the data set; notes its end, or what it raised."""
        try:
            self.start()
            read()
        except StopIteration:
            self._ended = True
        except BaseException as error:
            error.add_note(f"infeed `{self.name}`: at element {self.read} of its data set")
            self._ended, self._error = True, error

    def _read_first(self) -> None:
        iterator: Any = self._iterator
        leaves, structure = jax.tree.flatten(next(iterator))
        arrays = [np.array(as_array(leaf)) for leaf in leaves]
        for number, array in enumerate(arrays):
            if not avals.is_number(array.dtype):
                raise FeedError(
                    f"infeed `{self.name}`: leaf {number} of element 0 is "
                    f"{leaves[number]!r:.60}, no array of numbers; convert it in the data set"
                )
        self._expect(arrays)
        dtypes = (dtype for _, dtype in self._expected)
        self._kept.append([a.astype(d) for a, d in zip(arrays, dtypes, strict=True)])
        self._structure = structure
        self.read += 1

    def _read_rows(self, target: Target, count: int) -> None:
        iterator: Any = self._iterator
        flatten = self._structure.flatten_up_to
        columns = [(whole, *e) for whole, e in zip(target.rows, self._expected, strict=True)]
        for row in range(target.filled, count):
            if target.cancelled:
                return
            element = next(iterator)
            try:
                leaves = flatten(element)
            except (ValueError, TypeError):
                raise self._other_structure(element) from None
            for leaf, (whole, shape, dtype) in zip(leaves, columns):  # noqa: B905 - hot
                if leaf.__class__ is np.ndarray and leaf.shape == shape and leaf.dtype == dtype:
                    whole[row] = leaf
                else:
                    number = next(n for n, w in enumerate(target.rows) if w is whole)
                    whole[row] = self._fitted(number, leaf, shape, dtype, element)
            self.read += 1
            target.filled = row + 1

    def _expect(self, arrays: Leaves) -> None:
        self._given = [array.dtype for array in arrays]
        dtypes = [_narrowed(array.dtype) for array in arrays]
        self._expected = [(array.shape, d) for array, d in zip(arrays, dtypes, strict=True)]
        self._avals = [jaxpr.ShapedArray(shape, dtype) for shape, dtype in self._expected]

    def _other_structure(self, element: Any) -> FeedError:
        return FeedError(
            f"infeed `{self.name}`: element {self.read} is a {jax.tree.structure(element)}, the "
            f"first was a {self._structure}"
        )

    def _fitted(
        self, number: int, leaf: Any, shape: tuple[int, ...], dtype: np.dtype, element: Any
    ) -> Any:
        if not jax.tree_util.all_leaves([leaf]):
            raise self._other_structure(element)
        array = as_array(leaf)
        if array.shape != shape:
            raise FeedError(
                f"infeed `{self.name}`: leaf {number} of element {self.read} has shape "
                f"{array.shape}, the first element had {shape}; all elements must be equal in "
                "shape (batch with drop_remainder=True)"
            )
        # The first element's own dtype may be wider; x64 mode is the tracing thread's, not ours.
        if array.dtype != self._given[number] and _narrowed(array.dtype) != dtype:
            raise FeedError(
                f"infeed `{self.name}`: leaf {number} of element {self.read} is {array.dtype}, "
                f"the first element's was {dtype}; cast it in the data set"
            )
        return array


def _narrowed(dtype: np.dtype) -> np.dtype:
    """The dtype that `jnp.asarray` would give."""
    return jax.dtypes.canonicalize_dtype(dtype)


def iterate(dataset: Any) -> Iterator[Any]:
    """The elements of an iterable, or of what a callable gives; tf.data's as NumPy arrays."""
    source = dataset if hasattr(dataset, "__iter__") else dataset()
    if hasattr(source, "as_numpy_iterator"):  # tf.data
        return source.as_numpy_iterator()
    return iter(source)


def as_array(leaf: Any) -> np.ndarray:
    """A leaf of an element as a NumPy array."""
    if hasattr(leaf, "detach"):  # a torch tensor, also one that requires grad
        leaf = leaf.detach().cpu()
    return np.asarray(leaf)
