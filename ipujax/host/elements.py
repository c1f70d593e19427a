"""Reads a data set element by element; all have the first element's structure and shapes."""

from __future__ import annotations

import collections
import dataclasses as dc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, ParamSpec, Protocol, TypeVar

import jax
import numpy as np

from ipujax.ground import FeedError, InternalError, PyTree, Worker, events, structure_text
from ipujax.host.keys import is_key, keys_to_words
from lowering import is_numeric_dtype, jaxpr

P = ParamSpec("P")
T = TypeVar("T")

Leaves = list[np.ndarray]
"""One element, flattened."""


class Target(Protocol):
    """A stack of rows that a reader fills with elements.

    Attributes:
      rows: one array per leaf, `[>= count, *shape]`.
      filled: how many rows hold an element; another thread may read this number meanwhile.
      cancelled: whether another thread needs no more elements.
    """

    rows: list[np.ndarray]
    filled: int
    cancelled: bool

    def count_filled_row(self) -> None:
        """Counts one more row that holds an element."""
        ...


class Reader(Protocol):
    """A reader that fills targets in the order of the requests."""

    def fetch(self, target: Target, count: int) -> Future[BaseException | None]:
        """Writes elements into a target's rows until it holds `count`, or is cancelled.

        Returns the data set's exception, if that is why there are fewer.
        """
        ...

    def return_unused_rows(self, target: Target, start: int, stop: int | None) -> None:
        """Puts rows that were not used (until `stop`, or all) in front of what is read next."""
        ...


@dc.dataclass(frozen=True, eq=False)
class Form:
    """The structure, dtypes and shapes that all elements have in common.

    Attributes:
      structure: the pytree structure.
      dtypes: the first element's own dtypes.
      avals: the shape and dtype of each leaf on the device.
    """

    structure: Any
    dtypes: list[np.dtype]
    avals: list[jaxpr.Aval]


class Elements:
    """A reader of a data set that keeps the elements that were read too early.

    A data set is the user's code. It may use JAX, which must not become part of a trace; it may
    block, for ever or for results that a program has still to send; Ctrl-C must not end it. So one
    thread reads it, from its first element to its last, and does nothing else. Data in memory is
    read by the caller, which is faster, where no trace is possible: from the second element on.

    Args:
      name: the queue's name, for messages.
      dataset: an iterable of pytrees of arrays, or a callable that gives one.
      form: the form of its elements, if that is known.

    Attributes:
      form: the form of its elements, once one has been read.
      started: whether reading of the data set has begun.
    """

    def __init__(self, name: str, dataset: Any, form: Form | None = None):
        self.name, self.form, self.started = name, form, False
        self._dataset = dataset
        self._iterator: Iterator[object] | None = None
        self._kept: collections.deque[Leaves] = collections.deque()
        self._read = 0
        self._ended = False
        self._has_keys = False
        self._error: BaseException | None = None
        self._worker: Worker | None = None
        self._is_in_memory = type(dataset) in (list, tuple, np.ndarray)
        self._lock = threading.Lock()

    def restart(self) -> Elements:
        """Returns a new reader of the same data set, from its beginning.

        After an error, the new reader accepts elements of another form.
        """
        return Elements(self.name, self._dataset, self.form if self._error is None else None)

    def read_first_element_form(self) -> BaseException | None:
        """Reads the first element, unless one has been read; returns the error if that fails."""
        return self._thread.submit_task(self._read_first_element_form_in_thread).result()

    def fetch(self, target: Target, count: int) -> Future[BaseException | None]:
        """As a `Reader`; an element is copied, as a data set may use its buffer for the next."""
        return self._submit(self._fill_target, target, count)

    def return_unused_rows(self, target: Target, start: int, stop: int | None) -> None:
        """As a `Reader`."""
        self._submit(self._keep_unused_rows, target, start, stop)

    def _submit(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if not self._is_in_memory or self.form is None:
            return self._thread.submit_task(function, *args, **kwargs)
        future: Future[T] = Future()
        with self._lock:
            future.set_result(function(*args, **kwargs))
        return future

    # --- in the thread --------------------------------------------------------------------------

    @property
    def _thread(self) -> Worker:
        if self._worker is None:
            self.started = True
            self._worker = Worker(f"ipujax-{self.name}")
            weakref.finalize(self, self._worker.stop_after_tasks)
        return self._worker

    def _read_first_element_form_in_thread(self) -> BaseException | None:
        with self._lock:
            return None if self.form is not None else self._read_catching(self._read_first_element)

    def _fill_target(self, target: Target, count: int) -> BaseException | None:
        with events.span("feed", self.name):
            while self._kept and target.filled < count:
                for rows, leaf in zip(target.rows, self._kept.popleft(), strict=True):
                    rows[target.filled] = leaf
                target.count_filled_row()
            if target.filled == count:
                return None
            return self._read_catching(lambda iterator: self._read_rows(iterator, target, count))

    def _keep_unused_rows(self, target: Target, start: int, stop: int | None) -> None:
        for row in range((target.filled if stop is None else stop) - 1, start - 1, -1):
            self._kept.appendleft([rows[row] for rows in target.rows])

    def _read_catching(
        self, read_elements: Callable[[Iterator[Any]], None]
    ) -> BaseException | None:
        """Reads from the data set; returns the exception that it raised, now or at its end.

        Interrupts are not the data set's; an error before the first element does not end it.
        """
        if self._ended:
            return self._error
        try:
            if self._iterator is None:
                self._iterator = iterate_dataset(self._dataset)
            read_elements(self._iterator)
        except StopIteration:
            self._ended, self._error = True, None if self._read else self._error
        except BaseException as error:
            error.add_note(f"infeed `{self.name}`: at element {self._read} of its data set")
            if not isinstance(error, Exception):
                self._iterator = self._iterator if self._read else None
                return error
            self._ended, self._error = True, error
        error = self._error if self._ended else None
        if self._ended and not self._read and not isinstance(error, FeedError):
            self._ended, self._iterator = False, None
        return error

    def _read_first_element(self, iterator: Iterator[object]) -> None:
        element = next(iterator)
        self._has_keys = any(map(is_key, jax.tree.leaves(element)))
        leaves, structure = jax.tree.flatten(keys_to_words(element))
        arrays = [self._copy_leaf(number, leaf) for number, leaf in enumerate(leaves)]
        for number, array in enumerate(arrays):
            if not is_numeric_dtype(array.dtype):
                raise FeedError(
                    f"infeed `{self.name}`: leaf {number} of element 0 is "
                    f"{leaves[number]!r:.60}, no array of numbers; convert it in the data set"
                )
        narrow_arrays = [array.astype(_narrow_dtype(array.dtype)) for array in arrays]
        self._kept.append(narrow_arrays)
        avals: list[jaxpr.Aval] = [
            jaxpr.ShapedArray(array.shape, array.dtype) for array in narrow_arrays
        ]
        self.form = Form(structure, [array.dtype for array in arrays], avals)
        self._read += 1

    def _copy_leaf(self, number: int, leaf: object) -> np.ndarray:
        array = self._leaf_as_array(number, leaf)
        try:
            return np.array(array)
        except MemoryError as error:  # a small array that is broadcast to a large shape, say
            raise FeedError(
                f"infeed `{self.name}`: leaf {number} of element {self._read} has shape "
                f"{array.shape} and takes {array.nbytes:,} bytes, more than this machine has",
                fix="yield the small array, and broadcast it in the loop",
            ) from error

    def _read_rows(self, iterator: Iterator[object], target: Target, count: int) -> None:
        form = self._form_of_first
        flatten = form.structure.flatten_up_to
        row_forms = zip(target.rows, form.avals, form.dtypes, strict=True)
        columns = [
            (rows, aval.shape, (aval.dtype, first_dtype)) for rows, aval, first_dtype in row_forms
        ]
        while target.filled < count:
            if target.cancelled or (self._worker is not None and self._worker.ends):
                return
            element = next(iterator)
            if self._has_keys:
                element = keys_to_words(element)
            try:
                leaves = flatten(element)
            except (ValueError, TypeError):
                raise self._structure_error(element) from None
            row = target.filled
            for leaf, (whole, shape, dtypes) in zip(leaves, columns):  # noqa: B905 - hot
                if leaf.__class__ is np.ndarray and leaf.shape == shape and leaf.dtype in dtypes:
                    whole[row] = leaf
                else:
                    number = next(
                        index for index, other_rows in enumerate(target.rows) if other_rows is whole
                    )
                    whole[row] = self._convert_leaf(number, leaf, shape, dtypes[0], element)
            self._read += 1
            target.count_filled_row()

    @property
    def _form_of_first(self) -> Form:
        if self.form is None:
            raise InternalError(f"infeed `{self.name}` is read before its first element is known")
        return self.form

    def _structure_error(self, element: object) -> FeedError:
        structure, first_structure = (
            structure_text(jax.tree.structure(element)),
            structure_text(self._form_of_first.structure),
        )
        return FeedError(
            f"infeed `{self.name}`: element {self._read} is a {structure}, the first was a "
            f"{first_structure}"
        )

    def _leaf_as_array(self, number: int, leaf: object) -> np.ndarray:
        if isinstance(leaf, jax.Array) and not is_numeric_dtype(leaf.dtype):
            raise FeedError(
                f"infeed `{self.name}`: leaf {number} of element {self._read} is a {leaf.dtype}, "
                "which that of the first element was not; yield keys in all elements, or in none"
            )
        return convert_leaf_to_array(leaf)

    def _convert_leaf(
        self, number: int, leaf: object, shape: tuple[int, ...], dtype: np.dtype, element: object
    ) -> np.ndarray:
        if not jax.tree_util.all_leaves([leaf]):
            raise self._structure_error(element)
        array = self._leaf_as_array(number, leaf)
        if array.shape != shape:
            raise FeedError(
                f"infeed `{self.name}`: leaf {number} of element {self._read} has shape "
                f"{array.shape}, the first element had {shape}; all elements must be equal in "
                "shape (batch with drop_remainder=True)"
            )
        # The first element's own dtype may be wider; the mode of x64 may have changed since.
        if (
            array.dtype != self._form_of_first.dtypes[number]
            and _narrow_dtype(array.dtype) != dtype
        ):
            raise FeedError(
                f"infeed `{self.name}`: leaf {number} of element {self._read} is {array.dtype}, "
                f"the first element's was {dtype}; cast it in the data set"
            )
        return array


class SyntheticElements:
    """A reader that repeats one element, from no data set."""

    def __init__(self, leaves: Leaves):
        self._leaves = leaves

    def fetch(self, target: Target, count: int) -> Future[BaseException | None]:
        """As a `Reader`, at once."""
        for rows, leaf in zip(target.rows, self._leaves, strict=True):
            rows[target.filled : count] = leaf
        while target.filled < count:
            target.count_filled_row()
        future: Future[BaseException | None] = Future()
        future.set_result(None)
        return future

    def return_unused_rows(self, target: Target, start: int, stop: int | None) -> None:
        """As a `Reader`; there are always more."""


def _narrow_dtype(dtype: np.dtype) -> np.dtype:
    """Returns the dtype that `jnp.asarray` would give."""
    return jax.dtypes.canonicalize_dtype(dtype)


def iterate_dataset(dataset: Any) -> Iterator[PyTree]:
    """Returns an iterator over an iterable or a callable's iterable; tf.data's as NumPy arrays."""
    is_factory = callable(dataset) and not hasattr(dataset, "__iter__")
    source: Any = dataset() if is_factory else dataset
    if hasattr(source, "as_numpy_iterator"):  # tf.data
        return source.as_numpy_iterator()
    if not hasattr(source, "__iter__"):
        raise FeedError(
            f"{source!r} is no data set: give an iterable of elements, or a callable that gives one"
        )
    return iter(source)


def convert_leaf_to_array(leaf: Any) -> np.ndarray:
    """Returns a leaf of an element as a NumPy array."""
    if hasattr(leaf, "detach"):  # a torch tensor, also one that requires grad
        leaf = leaf.detach().cpu()
    return np.asarray(leaf)
