"""Infeeds: a data set on the host, read element by element from inside compiled loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from ipujax.ground import (
    FeedError,
    OutOfRangeError,
    PyTree,
    TreeStructure,
    is_plain_list_or_tuple,
    structure_text,
)
from ipujax.host.elements import Elements, Form, Reader, SyntheticElements
from ipujax.host.infeed_reading import Fetch, make_exhausted_error
from ipujax.host.keys import words_to_keys
from ipujax.host.queues import Queue, check, warn_of_deprecated_argument
from ipujax.host.synthetic import make_synthetic_array
from ipujax.system import SyntheticDataCategory, read_poplar_flags
from lowering import jaxpr, limit_dir_to, ops


@check.guard
@limit_dir_to(
    "deleter",
    "dequeued",
    "get_next",
    "initializer",
    "name",
    "number_of_tuple_elements",
    "prefetch_depth",
)
class IPUInfeedQueue(Queue):
    """Wraps a data set so that `ipu.loops` and pipelines can take its elements on the device.

    Args:
      dataset: an iterable of pytrees of arrays, or a zero-argument callable that gives one;
        grain, torch DataLoaders and tf.data work alike. All elements must have the shapes and
        dtypes of the first. It never restarts by itself.
      feed_name: a name of one's own (deprecated; one is generated).
      device_ordinal: the device of the programs that use the queue.
      replication_factor: deprecated; it follows from the program.
      data_to_prefetch: deprecated; use `prefetch_depth`.
      prefetch_depth: at most so many elements are fetched ahead, 1 to 255; None chooses.
      optimise_latency: True or False; the original then copied elements in smaller parts. Here it
        changes nothing.

    Raises:
      FeedError: for arguments out of range (a `ValueError`).

    An element that is a tuple or list becomes positional arguments of the loop body, a dict (also
    alone in a tuple) keyword arguments, anything else one argument (facts infeed.dict_kwargs,
    infeed.nested_dict_positional).
    """

    kind = "infeed"

    def __init__(
        self,
        dataset: Any,
        feed_name: str | None = None,
        device_ordinal: int = 0,
        replication_factor: int = 1,
        data_to_prefetch: int = 1,
        prefetch_depth: int | None = None,
        *,
        optimise_latency: bool = False,
    ):
        check.require_flag(optimise_latency, "optimise_latency")
        replicated = replication_factor != 1
        warn_of_deprecated_argument(
            self, replicated, "replication_factor", "it follows from the program"
        )
        warn_of_deprecated_argument(
            self, data_to_prefetch != 1, "data_to_prefetch", "use prefetch_depth"
        )
        warn_of_deprecated_argument(self, feed_name is not None, "feed_name", "names are generated")
        if not callable(dataset) and not hasattr(dataset, "__iter__"):
            raise FeedError(
                f"an infeed takes an iterable of elements or a callable that gives one, not "
                f"{type(dataset).__name__}"
            )
        self.prefetch_depth = _check_prefetch_depth(prefetch_depth)
        self.fetches_ahead = True
        super().__init__(feed_name, device_ordinal)
        self._elements = Elements(self.name, dataset)
        self._replicas: int | None = None
        self._initializer_taken = False
        self._synthetic: SyntheticElements | None = None
        self._traced: Form | None = None  # the form that the program traced last takes

    # --- the original's interface ---------------------------------------------------------------

    @property
    def dequeued(self) -> bool:
        """True if a traced loop takes elements from the queue."""
        return self._traced is not None

    @property
    def number_of_tuple_elements(self) -> int:
        """The number of arguments that an element becomes."""
        args, kwargs = self.arguments()
        return len(args) + len(kwargs)

    @property
    def initializer(self) -> Callable[[], None]:
        """A callable that starts the data set anew; nobody needs to call it the first time.

        Raises:
          FeedError: the second time it is asked for.
        """
        if self._initializer_taken:
            raise FeedError("the initializer of an infeed queue can only be accessed once")
        self._initializer_taken = True
        return self._initialize

    @property
    def deleter(self) -> Callable[[], None]:
        """A callable that releases the queue; its data set is not read any more."""
        return self._delete

    def get_next(self) -> None:
        """Raises an error: this method is obsolete.

        Raises:
          FeedError: always.
        """
        raise FeedError("get_next is obsolete; give the queue to ipu.loops or to a pipeline")

    # --- reading --------------------------------------------------------------------------------

    @property
    def avals(self) -> list[jaxpr.Aval]:
        """Shape and dtype of each leaf of an element; reads one element the first time."""
        return self._element_form.avals

    @property
    def _element_form(self) -> Form:
        elements = self._elements
        error = elements.read_first_element_form() if elements.form is None else None
        if elements.form is None:
            raise make_exhausted_error(self, 1, 0, error)
        return elements.form

    @property
    def structure(self) -> TreeStructure:
        """The pytree structure of an element; reads one element the first time."""
        return self._element_form.structure

    def take_traced_element(self, loop: Any) -> tuple[list[PyTree], dict[str, PyTree]]:
        """Takes an element inside a traced loop body; gives the body's arguments.

        Args:
          loop: the pytree structure of the loop's variables.
        """
        structure = self.structure
        self._traced = self._element_form
        return _to_arguments(structure, ops.dequeue(self, self.avals, loop=loop))

    def arguments(self) -> tuple[list[PyTree], dict[str, PyTree]]:
        """Returns the arguments that an element becomes, with avals in place of arrays."""
        return _to_arguments(self.structure, self.avals)

    @property
    def has_dict_in_tuple(self) -> bool:
        """True if an element is a dict alone in a tuple."""
        element = jax.tree.unflatten(self.structure, self.avals)
        return (
            is_plain_list_or_tuple(element) and len(element) == 1 and isinstance(element[0], dict)
        )

    def arguments_from_leaves(self, leaves: list[object]) -> tuple[list[PyTree], dict[str, PyTree]]:
        """Returns the arguments that an element with these leaves becomes."""
        return _to_arguments(self.structure, leaves)

    @property
    def reader(self) -> Reader:
        """The reader of the elements: of the data set, or of synthetic ones."""
        return self._elements if self._synthetic is None else self._synthetic

    def pull(self, count: int | None) -> list[np.ndarray]:
        """Takes one element (or `count`, stacked) for a program under plain `jax.jit`."""
        self.refuse_elements_of_other_form()
        self.begin_run(1)
        try:
            rows = self.rows(1 if count is None else count)
        finally:
            self.end_run()
        return [row[0] for row in rows] if count is None else rows

    def rows(self, count: int, *, keep: bool = False) -> list[np.ndarray]:
        """Takes the next `count` elements, stacked.

        Args:
          count: how many.
          keep: they stay in the queue.

        Raises:
          OutOfRangeError: there are fewer; those stay in the queue.
        """
        fetch = Fetch(count, [np.empty((count, *a.shape), a.dtype) for a in self.avals])
        error = self.reader.fetch(fetch, count).result()
        if keep or fetch.filled < count:
            self.reader.return_unused_rows(fetch, 0, None)
        if fetch.filled < count:
            raise make_exhausted_error(self, count, fetch.filled, error)
        return fetch.rows

    def begin_run(self, replicas: int) -> None:
        """Starts a run of a program; the first run binds the queue to its number of replicas."""
        with self.changed:
            if self._replicas not in (None, replicas):
                raise FeedError(
                    f"infeed `{self.name}` was first used with {self._replicas} replica(s), now "
                    f"with {replicas}; use one queue for each replication factor"
                )
            flags = read_poplar_flags()
            synthetic = flags.is_synthetic(SyntheticDataCategory.Infeed) or flags.null_data_feed
            if synthetic and self._synthetic is None:
                self._synthetic = SyntheticElements(
                    [make_synthetic_array(aval) for aval in self.avals]
                )
            elif not synthetic:
                self._synthetic = None
            super().begin_run(replicas)
            self._replicas = replicas

    def refuse_elements_of_other_form(self) -> None:
        """Raises an error if a restarted data set gives elements of another form."""
        traced, form = self._traced, self._elements.form
        if traced is None or form is traced:
            return
        current_text, compiled_text = (
            _describe_elements(element_form) for element_form in (self._element_form, traced)
        )
        if current_text != compiled_text:
            raise FeedError(
                f"infeed `{self.name}`: its data set now gives {current_text}, and the program was "
                f"compiled for {compiled_text}",
                fix="compile the function again: ipu.compile(fn)",
            )

    def _export_elements(self, count: int) -> Iterator[PyTree]:
        """Yields `count` elements as pytrees; for benchmarks and exports."""
        for number in range(count):
            try:
                rows = self.rows(1)
            except OutOfRangeError:
                raise make_exhausted_error(self, count, number, None) from None
            yield words_to_keys(jax.tree.unflatten(self.structure, [row[0] for row in rows]))

    def _initialize(self) -> None:
        with self.changed:
            self._elements = self._elements.restart()
            if self._replicas is None:  # no program that runs takes elements of this form
                self._elements.form = self._traced = None
            self._elements.started, self.deleted = True, False

    def _delete(self) -> None:
        with self.changed:
            if not self._elements.started and not self.deleted:
                raise FeedError(
                    f"infeed with id=`{self.name}` was not found: its deleter ran before its "
                    "initializer and before any program"
                )
            self.delete()
            self._elements = self._elements.restart()


def _describe_elements(form: Form) -> str:
    """Describes the structure, shapes and dtypes of elements, for messages."""
    leaves = [aval.str_short() for aval in form.avals]
    return structure_text(form.structure) + f" of {', '.join(leaves)}" if leaves else "nothing"


def _to_arguments(structure: Any, leaves: list[Any]) -> tuple[list[PyTree], dict[str, PyTree]]:
    element = words_to_keys(jax.tree.unflatten(structure, leaves))
    if is_plain_list_or_tuple(element):
        if len(element) == 1 and isinstance(element[0], dict):
            return [], element[0]
        return list(element), {}
    if isinstance(element, dict):
        return [], element
    return [element], {}


def _check_prefetch_depth(depth: int | None) -> int | None:
    if depth is not None and not 0 < check.require_integer(depth, "prefetch_depth") < 256:
        raise FeedError(f"prefetch_depth must be > 0 and < 256, it is {depth}")
    return depth
