"""A data set, read element by element: every element has the first one's structure and shapes."""

from __future__ import annotations

import collections
import dataclasses as dc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Protocol

import jax
import numpy as np

from ipujax import events
from ipujax.checks.structures import shown
from ipujax.errors import FeedError, InternalError
from ipujax.host.keys import is_key, keys_to_words
from ipujax.host.worker import P, T, Worker
from lowering import is_number, jaxpr

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

    def advance(self) -> None:
        """One more row holds an element."""
        ...


class Reader(Protocol):
    """What fills targets, one after the other, in the order in which it was asked to."""

    def fetch(self, target: Target, count: int) -> Future[BaseException | None]:
        """Writes elements into a target's rows until it holds `count`, or is cancelled.

        Gives the data set's exception, if that is why there are fewer.
        """
        ...

    def give_back(self, target: Target, start: int, stop: int | None) -> None:
        """Puts rows that were not used (until `stop`, or all) in front of what is read next."""
        ...


@dc.dataclass(frozen=True, eq=False)
class Form:
    """What all elements have in common.

    Attributes:
      structure: the pytree structure.
      dtypes: the first element's own dtypes.
      avals: shape and dtype of each leaf on the device.
    """

    structure: Any
    dtypes: list[np.dtype]
    avals: list[jaxpr.Aval]


class Elements:
    """Reads a data set, and keeps what was read too early.

    A data set is the user's code. It may use JAX, and must not get into a trace; it may wait, for
    ever or for results that a program has still to send; Ctrl-C must not end it. So one thread
    reads it, from its first element to its last, and does nothing else. What is in memory already
    is read at once, which is faster, where no trace is possible: from the second element on.

    Args:
      name: of the queue, for messages.
      dataset: an iterable of pytrees of arrays, or a callable that gives one.
      form: of its elements, if that is known.

    Attributes:
      form: of its elements, once one has been read.
      started: whether the data set has been asked for.
    """

    def __init__(self, name: str, dataset: Any, form: Form | None = None):
        self.name, self.form, self.started = name, form, False
        self._dataset = dataset
        self._iterator: Iterator[Any] | None = None
        self._kept: collections.deque[Leaves] = collections.deque()
        self._read = 0
        self._ended = False
        self._has_keys = False
        self._error: BaseException | None = None
        self._worker: Worker | None = None
        self._is_in_memory = type(dataset) in (list, tuple, np.ndarray)
        self._lock = threading.Lock()

    def anew(self) -> Elements:
        """The same data set from its beginning, whatever has become of this reading of it.

        One that failed may be mended by giving elements of another form.
        """
        return Elements(self.name, self._dataset, self.form if self._error is None else None)

    def peek(self) -> BaseException | None:
        """Reads the first element, unless one has been read; gives what went wrong instead."""
        return self._thread.submit(self._peek).result()

    def fetch(self, target: Target, count: int) -> Future[BaseException | None]:
        """As a `Reader`; an element is copied, as a data set may use its buffer for the next."""
        return self._submit(self._fill, target, count)

    def give_back(self, target: Target, start: int, stop: int | None) -> None:
        """As a `Reader`."""
        self._submit(self._keep, target, start, stop)

    def _submit(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if not self._is_in_memory or self.form is None:
            return self._thread.submit(function, *args, **kwargs)
        done: Future[T] = Future()
        with self._lock:
            done.set_result(function(*args, **kwargs))
        return done

    # --- in the thread --------------------------------------------------------------------------

    @property
    def _thread(self) -> Worker:
        if self._worker is None:
            self.started = True
            self._worker = Worker(f"ipujax-{self.name}")
            weakref.finalize(self, self._worker.stop)
        return self._worker

    def _peek(self) -> BaseException | None:
        with self._lock:
            return None if self.form is not None else self._reading(self._read_first)

    def _fill(self, target: Target, count: int) -> BaseException | None:
        with events.span("feed", self.name):
            while self._kept and target.filled < count:
                for whole, leaf in zip(target.rows, self._kept.popleft(), strict=True):
                    whole[target.filled] = leaf
                target.advance()
            if target.filled == count:
                return None
            return self._reading(lambda iterator: self._read_rows(iterator, target, count))

    def _keep(self, target: Target, start: int, stop: int | None) -> None:
        for row in range((target.filled if stop is None else stop) - 1, start - 1, -1):
            self._kept.appendleft([whole[row] for whole in target.rows])

    def _reading(self, read: Callable[[Iterator[Any]], None]) -> BaseException | None:
        """Reads from the data set; gives what it raised, now or when it ended.

        Interrupts are not the data set's; what comes before the first element is not its end yet.
        """
        if self._ended:
            return self._error
        try:
            if self._iterator is None:
                self._iterator = iterate(self._dataset)
            read(self._iterator)
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

    def _read_first(self, iterator: Iterator[Any]) -> None:
        element = next(iterator)
        self._has_keys = any(map(is_key, jax.tree.leaves(element)))
        leaves, structure = jax.tree.flatten(keys_to_words(element))
        arrays = [self._copy(number, leaf) for number, leaf in enumerate(leaves)]
        for number, array in enumerate(arrays):
            if not is_number(array.dtype):
                raise FeedError(
                    f"infeed `{self.name}`: leaf {number} of element 0 is "
                    f"{leaves[number]!r:.60}, no array of numbers; convert it in the data set"
                )
        narrow = [array.astype(_narrowed(array.dtype)) for array in arrays]
        self._kept.append(narrow)
        avals = [jaxpr.ShapedArray(array.shape, array.dtype) for array in narrow]
        self.form = Form(structure, [array.dtype for array in arrays], avals)
        self._read += 1

    def _copy(self, number: int, leaf: Any) -> np.ndarray:
        array = self._array(number, leaf)
        try:
            return np.array(array)
        except MemoryError as error:  # a small array that is broadcast to a large shape, say
            raise FeedError(
                f"infeed `{self.name}`: leaf {number} of element {self._read} has shape "
                f"{array.shape} and takes {array.nbytes:,} bytes, more than this machine has",
                fix="yield the small array, and broadcast it in the loop",
            ) from error

    def _read_rows(self, iterator: Iterator[Any], target: Target, count: int) -> None:
        form = self._known
        flatten = form.structure.flatten_up_to
        leaves_of = zip(target.rows, form.avals, form.dtypes, strict=True)
        columns = [(whole, aval.shape, (aval.dtype, own)) for whole, aval, own in leaves_of]
        while target.filled < count:
            if target.cancelled or (self._worker is not None and self._worker.ends):
                return
            element = next(iterator)
            if self._has_keys:
                element = keys_to_words(element)
            try:
                leaves = flatten(element)
            except (ValueError, TypeError):
                raise self._other_structure(element) from None
            row = target.filled
            for leaf, (whole, shape, dtypes) in zip(leaves, columns):  # noqa: B905 - hot
                if leaf.__class__ is np.ndarray and leaf.shape == shape and leaf.dtype in dtypes:
                    whole[row] = leaf
                else:
                    number = next(n for n, w in enumerate(target.rows) if w is whole)
                    whole[row] = self._fitted(number, leaf, shape, dtypes[0], element)
            self._read += 1
            target.advance()

    @property
    def _known(self) -> Form:
        if self.form is None:
            raise InternalError(f"infeed `{self.name}` is read before its first element is known")
        return self.form

    def _other_structure(self, element: Any) -> FeedError:
        other, first = shown(jax.tree.structure(element)), shown(self._known.structure)
        return FeedError(
            f"infeed `{self.name}`: element {self._read} is a {other}, the first was a {first}"
        )

    def _array(self, number: int, leaf: Any) -> np.ndarray:
        if isinstance(leaf, jax.Array) and not is_number(leaf.dtype):
            raise FeedError(
                f"infeed `{self.name}`: leaf {number} of element {self._read} is a {leaf.dtype}, "
                "which that of the first element was not; yield keys in all elements, or in none"
            )
        return as_array(leaf)

    def _fitted(
        self, number: int, leaf: Any, shape: tuple[int, ...], dtype: np.dtype, element: Any
    ) -> Any:
        if not jax.tree_util.all_leaves([leaf]):
            raise self._other_structure(element)
        array = self._array(number, leaf)
        if array.shape != shape:
            raise FeedError(
                f"infeed `{self.name}`: leaf {number} of element {self._read} has shape "
                f"{array.shape}, the first element had {shape}; all elements must be equal in "
                "shape (batch with drop_remainder=True)"
            )
        # The first element's own dtype may be wider; the mode of x64 may have changed since.
        if array.dtype != self._known.dtypes[number] and _narrowed(array.dtype) != dtype:
            raise FeedError(
                f"infeed `{self.name}`: leaf {number} of element {self._read} is {array.dtype}, "
                f"the first element's was {dtype}; cast it in the data set"
            )
        return array


class Synthetic:
    """Reads the same element again and again, from no data set."""

    def __init__(self, leaves: Leaves):
        self._leaves = leaves

    def fetch(self, target: Target, count: int) -> Future[BaseException | None]:
        """As a `Reader`, at once."""
        for whole, leaf in zip(target.rows, self._leaves, strict=True):
            whole[target.filled : count] = leaf
        while target.filled < count:
            target.advance()
        done: Future[BaseException | None] = Future()
        done.set_result(None)
        return done

    def give_back(self, target: Target, start: int, stop: int | None) -> None:
        """As a `Reader`; there are always more."""


def _narrowed(dtype: np.dtype) -> np.dtype:
    """The dtype that `jnp.asarray` would give."""
    return jax.dtypes.canonicalize_dtype(dtype)


def iterate(dataset: Any) -> Iterator[Any]:
    """The elements of an iterable, or of what a callable gives; tf.data's as NumPy arrays."""
    makes = callable(dataset) and not hasattr(dataset, "__iter__")
    source: Any = dataset() if makes else dataset
    if hasattr(source, "as_numpy_iterator"):  # tf.data
        return source.as_numpy_iterator()
    if not hasattr(source, "__iter__"):
        raise FeedError(
            f"{source!r} is no data set: give an iterable of elements, or a callable that gives one"
        )
    return iter(source)


def as_array(leaf: Any) -> np.ndarray:
    """A leaf of an element as a NumPy array."""
    if hasattr(leaf, "detach"):  # a torch tensor, also one that requires grad
        leaf = leaf.detach().cpu()
    return np.asarray(leaf)
