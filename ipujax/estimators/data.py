"""The data set of one training, evaluation or prediction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ipujax.checkpoints.position import Position, Tracked, resumed
from ipujax.errors import OutOfRangeError
from ipujax.estimators.checks import check
from ipujax.estimators.mode import Settings
from ipujax.estimators.model_fn import ByName
from ipujax.host.elements import iterate


def elements_of(input_fn: Any, mode: str, settings: Settings) -> Iterator[Any]:
    """The elements of the data set that a user's `input_fn` gives in a mode."""
    offered = {
        "mode": mode,
        "params": settings.params_of(mode),
        "config": settings.config,
        "input_context": settings.workers_of(mode).context,
    }
    function = ByName(input_fn, "input_fn", offered)
    size = settings.batch_sizes.get(mode)
    if size is not None and not function.takes("params"):
        raise check.refuse(
            f"the batch size of mode {mode!r} is {size}, and input_fn takes no params, which would "
            "tell it: the batch size acts on nothing",
            "take `params` in input_fn and batch by params['batch_size'], or leave the batch size "
            "out",
        )
    data = function(**offered)
    if data is None or isinstance(data, (tuple, int, float, str, bytes)):
        raise check.refuse(
            f"input_fn returns {data!r:.60}, which is no data set",
            "return an iterable of elements (features, labels), or a callable that gives one",
        )
    return iterate(data)


class DataSet(Iterator[Any]):
    """Elements that are read once, with a look at the first one and at the place.

    Args:
      elements: of the data set, from its beginning.
      position: where to go on; None for the first element.
    """

    def __init__(self, elements: Iterator[Any], position: Position | None = None):
        self._tracked = Tracked(elements) if position is None else resumed(elements, position)
        self._before = 0 if position is None else position.taken
        self._peeked: list[Any] = []

    def first(self) -> Any:
        """The element that comes next; it stays there.

        Raises:
          OutOfRangeError: there is none.
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

    def __next__(self) -> Any:
        return self._peeked.pop() if self._peeked else next(self._tracked)

    def position(self, taken: int) -> Position:
        """The place after so many elements from where this reading began."""
        return self._tracked.position(self._before + taken)
