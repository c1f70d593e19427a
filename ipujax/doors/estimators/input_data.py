"""The data set of one training, evaluation or prediction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ipujax.checkpoints import Position, TrackedIterator, resume_iterator
from ipujax.doors.estimators.estimator_checks import check
from ipujax.doors.estimators.estimator_mode import EstimatorSettings
from ipujax.doors.estimators.model_fn import FunctionByName
from ipujax.ground import OutOfRangeError, PyTree
from ipujax.host import iterate_dataset


def open_data_set(input_fn: object, mode: str, settings: EstimatorSettings) -> Iterator[PyTree]:
    """Returns the elements of the data set that a user's `input_fn` gives in a mode."""
    available_arguments = {
        "mode": mode,
        "params": settings.params_of(mode),
        "config": settings.config,
        "input_context": settings.workers_of(mode).worker_input_context,
    }
    function = FunctionByName(input_fn, "input_fn", available_arguments)
    size = settings.batch_sizes.get(mode)
    if size is not None and not function.takes("params"):
        raise check.value_error(
            f"the batch size of mode {mode!r} is {size}, and input_fn takes no params, which would "
            "tell it: the batch size acts on nothing",
            "take `params` in input_fn and batch by params['batch_size'], or leave the batch size "
            "out",
        )
    data = function(**available_arguments)
    if data is None or isinstance(data, (tuple, int, float, str, bytes)):
        raise check.value_error(
            f"input_fn returns {data!r:.60}, which is no data set",
            "return an iterable of elements (features, labels), or a callable that gives one",
        )
    return iterate_dataset(data)


class DataSet(Iterator[Any]):
    """An iterator over a data set that can show its first element and its position.

    Args:
      elements: the elements of the data set, from its beginning.
      position: the position to resume from; None for the first element.
    """

    def __init__(self, elements: Iterator[object], position: Position | None = None):
        self._tracked = (
            TrackedIterator(elements) if position is None else resume_iterator(elements, position)
        )
        self._before = 0 if position is None else position.taken
        self._peeked: list[object] = []

    def peek_element(self) -> PyTree:
        """Returns the next element without consuming it.

        Raises:
          OutOfRangeError: the data set is empty.
        """
        if not self._peeked:
            for element in self._tracked:
                self._peeked.append(element)
                break
            else:
                raise OutOfRangeError(
                    "the data set that input_fn gives is empty",
                    requested=1,
                    available=0,
                    fix="give at least one element; an iterator is used up once it has been read",
                )
        return self._peeked[0]

    def __next__(self) -> PyTree:
        return self._peeked.pop() if self._peeked else next(self._tracked)

    def position_of_data_set(self, num_elements: int) -> Position:
        """Returns the position after some elements from the start of this iterator."""
        return self._tracked.position_after(self._before + num_elements)
