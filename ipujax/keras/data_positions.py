"""The position of a Keras training in its data, from which another process resumes.

Keras's `EpochIterator` defines the epochs: in the scope of a strategy it gives `Batches`, which
count the batches that the device has consumed.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ipujax.keras import random_states
from ipujax.keras.keras_batches import Batches
from ipujax.keras.random_states import RandomState
from ipujax.keras.strategy import current_strategy

# Attributes of an EpochIterator.
_BATCHES = "_ipu_batches"  # the newest `Batches`
_OPENED = "_ipu_opened"  # the `Batches` that were opened ahead, to be given next
_POSITION = "_ipu_position"  # the `Position` at which the next epoch resumes


@dc.dataclass(frozen=True)
class Position:
    """The position that a training has reached in its data.

    Attributes:
      epoch: the epoch of the training.
      batches: the number of the epoch's batches that were trained with.
      used: the number of batches of the data set's current iterator; it may span epochs.
      random: the states of the random generators when that iterator began or, if none is in use,
        at this point; None if unknown.
    """

    epoch: int
    batches: int = 0
    used: int = 0
    random: RandomState | None = None


class _Latest(threading.local):
    def __init__(self) -> None:
        self.epochs: weakref.ref[Any] | None = None


_latest = _Latest()


def latest_epoch_iterator() -> weakref.ref[Any] | None:
    """Returns the `EpochIterator` that this thread reset last: in `fit`, that of the training."""
    return _latest.epochs


def extend_epoch_iterator(iterator_class: Any, open_batches: Callable[[Any], Batches]) -> None:
    """Extends Keras's epoch iterator to resume at a position, in the scope of a strategy.

    Args:
      iterator_class: the class.
      open_batches: returns the batches of an epoch iterator.
    """
    original_get_iterator, original_reset, original_enumerate = (
        iterator_class._get_iterator,
        iterator_class.reset,
        iterator_class._enumerate_iterator,
    )

    @functools.wraps(original_get_iterator)
    def open_iterator_in_scope(epochs: Any) -> Any:
        if current_strategy() is None:
            return original_get_iterator(epochs)
        opened = vars(epochs).pop(_OPENED, None)
        vars(epochs)[_BATCHES] = opened or open_batches(epochs)
        return vars(epochs)[_BATCHES]

    @functools.wraps(original_reset)
    def reset_and_remember(epochs: Any) -> None:
        original_reset(epochs)
        _latest.epochs = weakref.ref(epochs)

    @functools.wraps(original_enumerate)
    def enumerate_from_position(epochs: Any) -> Any:
        position = vars(epochs).pop(_POSITION, None)
        return (
            original_enumerate(epochs)
            if position is None
            else _enumerate_remaining_steps(original_enumerate, epochs, position)
        )

    iterator_class._get_iterator, iterator_class.reset, iterator_class._enumerate_iterator = (
        open_iterator_in_scope,
        reset_and_remember,
        enumerate_from_position,
    )


def position_of_training(epochs: Any, epoch: int, batches: int) -> Position:
    """Returns the position of a training in its data.

    Args:
      epochs: the training's `EpochIterator`; None if there is none.
      epoch: the epoch of the training.
      batches: the number of this epoch's batches that were trained with.
    """
    total = None if epochs is None else epochs.num_batches
    if total is not None and batches >= total:
        epoch, batches = epoch + 1, 0
    batches_in_use: Batches | None = None if epochs is None else vars(epochs).get(_BATCHES)
    if (
        batches_in_use is None
        or batches_in_use.random is None
        or _is_iterator_used_up(epochs, batches_in_use, batches)
    ):
        return Position(epoch, batches, 0, random_states.capture_generators())
    return Position(epoch, batches, batches_in_use.used, batches_in_use.random)


def _is_iterator_used_up(epochs: Any, batches_in_use: Batches, batches: int) -> bool:
    """Returns whether the next batch is the first one of a new iterator."""
    if not epochs.steps_per_epoch:
        return not batches
    return epochs._num_batches is not None and batches_in_use.used >= epochs._num_batches


def resume_at_position(epochs: Any, position: Position) -> int:
    """Has a training resume at a position; returns the epoch to begin with."""
    if epochs is None or not position.used:
        if position.random is not None:
            random_states.restore_generators(position.random)
        return position.epoch
    if epochs.num_batches is None:  # the epoch may have been over unnoticed
        batches: Batches = epochs._get_iterator()
        batches.skip_batches(position.used, position.random)
        if batches.is_at_end():
            return position.epoch + 1
        vars(epochs)[_OPENED] = batches
    vars(epochs)[_POSITION] = position
    return position.epoch


def _enumerate_remaining_steps(
    original_enumerate: Callable[[Any], Iterator[tuple[int, int, Batches]]],
    epochs: Any,
    position: Position,
) -> Iterator[tuple[int, int, Batches]]:
    """Yields the steps of an epoch that come after a position."""
    if epochs.steps_per_epoch:
        epochs._current_iterator = epochs._get_iterator()
        epochs._steps_seen = position.used - position.batches
    for begin, end, batches in original_enumerate(epochs):
        if not batches.used:
            batches.skip_batches(position.used, position.random)
        if begin >= position.batches:
            yield begin, end, batches
