"""The point that a training of Keras has reached in its data; another process goes on from there.

Keras's `EpochIterator` says what an epoch is: in the scope of a strategy it gives `Batches`, which
count what the device has had.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ipujax.keras import random_states
from ipujax.keras.batches import Batches
from ipujax.keras.random_states import RandomState
from ipujax.keras.strategy import current

# Attributes of an EpochIterator.
_BATCHES = "_ipu_batches"  # the newest
_OPENED = "_ipu_opened"  # that were opened ahead, to be given next
_POSITION = "_ipu_position"  # where the next epoch goes on


@dc.dataclass(frozen=True)
class Position:
    """The point in its data that a training has reached.

    Attributes:
      epoch: that it is in.
      batches: how many of the epoch's batches were trained with.
      used: how many batches of the data set's current iterator were; it may span epochs.
      random: the states of the random generators when that iterator began or, if none is in use,
        now; None if nobody knows.
    """

    epoch: int
    batches: int = 0
    used: int = 0
    random: RandomState | None = None


class _Latest(threading.local):
    def __init__(self) -> None:
        self.epochs: weakref.ref[Any] | None = None


_latest = _Latest()


def latest_epochs() -> weakref.ref[Any] | None:
    """The `EpochIterator` that this thread reset last: in `fit`, that of the training."""
    return _latest.epochs


def extend(kind: Any, open_batches: Callable[[Any], Batches]) -> None:
    """Has Keras's class of epoch iterators know their positions, in the scope of a strategy.

    Args:
      kind: the class.
      open_batches: gives the batches of an epoch iterator.
    """
    opens, resets, enumerates = kind._get_iterator, kind.reset, kind._enumerate_iterator

    @functools.wraps(opens)
    def get_iterator(epochs: Any) -> Any:
        if current() is None:
            return opens(epochs)
        opened = vars(epochs).pop(_OPENED, None)
        vars(epochs)[_BATCHES] = opened or open_batches(epochs)
        return vars(epochs)[_BATCHES]

    @functools.wraps(resets)
    def reset(epochs: Any) -> None:
        resets(epochs)
        _latest.epochs = weakref.ref(epochs)

    @functools.wraps(enumerates)
    def enumerate_iterator(epochs: Any) -> Any:
        position = vars(epochs).pop(_POSITION, None)
        return (
            enumerates(epochs)
            if position is None
            else _enumerate_rest(enumerates, epochs, position)
        )

    kind._get_iterator, kind.reset, kind._enumerate_iterator = (
        get_iterator,
        reset,
        enumerate_iterator,
    )


def find_position(epochs: Any, epoch: int, batches: int) -> Position:
    """The position of a training.

    Args:
      epochs: its `EpochIterator`; None if there is none.
      epoch: that it is in.
      batches: of this epoch that it has made.
    """
    total = None if epochs is None else epochs.num_batches
    if total is not None and batches >= total:
        epoch, batches = epoch + 1, 0
    running: Batches | None = None if epochs is None else vars(epochs).get(_BATCHES)
    if running is None or running.random is None or _is_over(epochs, running, batches):
        return Position(epoch, batches, 0, random_states.capture())
    return Position(epoch, batches, running.used, running.random)


def _is_over(epochs: Any, running: Batches, batches: int) -> bool:
    """Returns whether the next batch is the first one of a new iterator."""
    if not epochs.steps_per_epoch:
        return not batches
    return epochs._num_batches is not None and running.used >= epochs._num_batches


def go_on(epochs: Any, position: Position) -> int:
    """Has a training go on at a position; gives the epoch to begin with."""
    if epochs is None or not position.used:
        if position.random is not None:
            random_states.restore(position.random)
        return position.epoch
    if epochs.num_batches is None:  # the epoch may have been over, which nobody knew
        batches: Batches = epochs._get_iterator()
        batches.skip(position.used, position.random)
        if batches.is_at_end():
            return position.epoch + 1
        vars(epochs)[_OPENED] = batches
    vars(epochs)[_POSITION] = position
    return position.epoch


def _enumerate_rest(
    enumerates: Callable[[Any], Iterator[tuple[int, int, Batches]]], epochs: Any, position: Position
) -> Iterator[tuple[int, int, Batches]]:
    """The steps of an epoch that come after those that were made."""
    if epochs.steps_per_epoch:
        epochs._current_iterator = epochs._get_iterator()
        epochs._steps_seen = position.used - position.batches
    for begin, end, batches in enumerates(epochs):
        if not batches.used:
            batches.skip(position.used, position.random)
        if begin >= position.batches:
            yield begin, end, batches
