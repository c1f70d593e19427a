"""The position in a data set at a checkpoint, so that training resumes with the next element.

An iterator with a state (`get_state` and `set_state`, as those of grain) is set to that state
again; for any other, as many elements are skipped as were taken.

    tracked = TrackedIterator(iter(dataset))
    ...                                     # something reads it, ahead of what it needs
    position = tracked.position_after(100)  # the first 100 elements are used
    tracked = resume_iterator(iter(dataset), position)
"""

from __future__ import annotations

import base64
import collections
import dataclasses as dc
import json
import threading
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from ipujax.checkpoints.checkpoint_checks import check
from ipujax.ground import Json, PyTree

_EVERY = 64  # elements between two states that are kept: so many are read again at most
_END = object()


@dc.dataclass(frozen=True)
class Position:
    """A position between two elements of a data set.

    Attributes:
      taken: elements before it, from the first of the data set.
      state: that the data set's iterator had there, or some elements before: bytes, or what JSON
        can express; None where iterators have no state.
      since: elements between that state and this place.
    """

    taken: int
    state: object = None
    since: int = 0

    def to_json(self) -> dict[str, Json]:
        """Returns the position as JSON values.

        Raises:
          CheckpointError: a state that would be another one afterwards.
        """
        state = self.state
        if isinstance(state, bytes):
            state = {"base64": base64.b64encode(state).decode()}
        else:
            state = {"json": state}
            try:
                same = json.loads(json.dumps(state)) == state
            except (TypeError, ValueError):
                same = False
            if not same:
                raise check.value_error(
                    f"the data set's iterator gives as its state {self.state!r:.200}, which "
                    "cannot be written",
                    "have its get_state give bytes, or dictionaries, lists, texts and numbers",
                )
        return {"taken": self.taken, "state": state, "since": self.since}

    @staticmethod
    def from_json(data: Json) -> Position:
        """Builds a position from the JSON values of `to_json`.

        Raises:
          ValueError, KeyError, TypeError: something else.
        """
        state = data["state"]
        state = base64.b64decode(state["base64"]) if "base64" in state else state["json"]
        num_taken, since = data["taken"], data["since"]
        if type(num_taken) is not int or type(since) is not int or not 0 <= since <= num_taken:
            raise ValueError(f"{since!r:.100} of {num_taken!r:.100} elements")
        return Position(num_taken, state, since)


@runtime_checkable
class _Stateful(Protocol):
    """An iterator that can return and restore its state."""

    def get_state(self) -> object: ...
    def set_state(self, state: object, /) -> object: ...


class TrackedIterator(Iterator[PyTree]):
    """An iterator that remembers positions of its data set.

    One thread may read it while another thread calls `position_after`.

    Args:
      iterator: the elements.
      start: its position in its data set; None for the beginning.
    """

    def __init__(self, iterator: Iterator[object], start: Position | None = None):
        self._iterator = iterator
        self._read = 0 if start is None else start.taken
        self._lock = threading.Lock()
        self._kept: collections.deque[Position] = collections.deque()
        self._remember_state()

    def __next__(self) -> PyTree:
        element = next(self._iterator)
        self._read += 1
        if self._read % _EVERY == 0 and isinstance(self._iterator, _Stateful):
            self._remember_state()
        return element

    def position_after(self, num_taken: int) -> Position:
        """Returns the position after `num_taken` elements, counted from the first of the data set.

        Positions must be asked for in order; states before the latest one are forgotten.
        """
        with self._lock:
            while len(self._kept) > 1 and self._kept[1].taken <= num_taken:
                self._kept.popleft()
            earlier_position = self._kept[0]
        return Position(num_taken, earlier_position.state, num_taken - earlier_position.taken)

    def _remember_state(self) -> None:
        state = self._iterator.get_state() if isinstance(self._iterator, _Stateful) else None
        with self._lock:
            self._kept.append(Position(self._read, state))


def resume_iterator(iterator: Iterator[object], position: Position) -> TrackedIterator:
    """Moves a new iterator to a position: its next element is the one after it.

    Raises:
      CheckpointError: a data set that is shorter, or whose iterators do not take that state.
    """
    num_to_skip = position.taken
    if position.state is not None and isinstance(iterator, _Stateful):
        try:
            iterator.set_state(position.state)
        except Exception as error:
            raise check.value_error(
                f"the data set cannot go on where it was when the checkpoint was made: {error}",
                "give the same data set as then",
            ) from error
        num_to_skip = position.since
    for number in range(num_to_skip):
        if next(iterator, _END) is _END:
            ended = position.taken - num_to_skip + number
            raise check.value_error(
                f"the data set ends after {ended} elements, but the checkpoint was made after "
                f"{position.taken} of them",
                "give the same data set as then",
            )
    return TrackedIterator(iterator, position)
