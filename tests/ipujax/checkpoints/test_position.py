"""A training goes on with the element after the last one that its checkpoint has seen."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipujax.checkpoints import Position, TrackedIterator, resume_iterator, store
from ipujax.errors import CheckpointError


class Counter(Iterator[int]):
    """The numbers from 0 on, with a state as grain's iterators have one."""

    def __init__(self, as_bytes: bool = False):
        self.next, self.taken, self._as_bytes = 0, 0, as_bytes

    def __next__(self) -> int:
        self.next, self.taken = self.next + 1, self.taken + 1
        return self.next - 1

    def get_state(self) -> Any:
        return str(self.next).encode() if self._as_bytes else {"next": [self.next]}

    def set_state(self, state: Any) -> None:
        self.next = int(state) if self._as_bytes else state["next"][0]


def written(position: Position, folder: Path) -> Position:
    """The position after it was in a checkpoint."""
    store.save_checkpoint(folder, 1, {"w": np.ones(2)}, position=position)
    restored = store.restore_checkpoint(folder)
    assert restored.step == 1
    assert restored.position is not None
    return restored.position


@pytest.mark.parametrize("as_bytes", [False, True])
@pytest.mark.parametrize("taken", [0, 1, 63, 64, 65, 200])
def test_an_iterator_with_a_state_is_put_there(as_bytes: bool, taken: int, tmp_path: Path) -> None:
    tracked = TrackedIterator(Counter(as_bytes))
    list(itertools.islice(tracked, 300))  # what reads it is ahead
    tracked.position_after(taken // 2)
    position = written(tracked.position_after(taken), tmp_path)
    assert position.taken == taken
    fresh = Counter(as_bytes)
    assert next(resume_iterator(fresh, position)) == taken
    assert fresh.taken <= 64  # of all others it did not ask again


@pytest.mark.parametrize("taken", [0, 1, 100])
def test_of_other_iterators_elements_are_skipped(taken: int, tmp_path: Path) -> None:
    tracked = TrackedIterator(iter(range(300)))
    list(itertools.islice(tracked, 200))
    position = written(tracked.position_after(taken), tmp_path)
    assert position == Position(taken, None, taken)
    assert next(resume_iterator(iter(range(300)), position)) == taken


@pytest.mark.parametrize("make", [Counter, lambda: iter(range(10**4))])
def test_positions_may_be_taken_again_and_again(make: Any) -> None:
    tracked, at = TrackedIterator(make()), 0
    for taken in (10, 100, 30):
        list(itertools.islice(tracked, taken + 77))
        at += taken
        tracked = resume_iterator(make(), tracked.position_after(at))
    assert next(tracked) == at


def test_states_do_not_pile_up() -> None:
    tracked = TrackedIterator(Counter())
    for taken in range(0, 10**4, 100):
        list(itertools.islice(tracked, 100))
        tracked.position_after(taken)
    assert len(tracked._kept) < 5


def test_a_state_may_be_missing_on_either_side() -> None:
    with_state = TrackedIterator(Counter())
    list(itertools.islice(with_state, 70))
    assert next(resume_iterator(iter(range(99)), with_state.position_after(66))) == 66
    assert next(resume_iterator(Counter(), Position(66, None, 66))) == 66


def test_a_shorter_data_set_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"ends after 5 elements, but .* after 7 of them"):
        resume_iterator(iter(range(5)), Position(7, None, 7))


def test_a_state_of_another_data_set_is_refused() -> None:
    with pytest.raises(CheckpointError, match="the data set cannot go on where it was"):
        resume_iterator(Counter(), Position(3, {"other": 1}, 0))


@pytest.mark.parametrize("state", [{1: 2}, (1, 2), object(), float("nan"), {"a": np.ones(2)}])
def test_states_must_be_writable(state: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="the data set's iterator gives as its state"):
        store.save_checkpoint(tmp_path, 0, {}, position=Position(0, state))
    assert list(tmp_path.iterdir()) == []


def test_grain_goes_on_where_it_was(tmp_path: Path) -> None:
    grain = pytest.importorskip("grain")
    dataset = grain.MapDataset.range(1000).shuffle(seed=3).batch(4)
    for each in (dataset, dataset.to_iter_dataset()):
        wanted = [np.asarray(batch) for batch in each]
        tracked = TrackedIterator(iter(each))
        list(itertools.islice(tracked, 150))
        position = written(tracked.position_after(70), tmp_path)
        assert position.state is not None
        np.testing.assert_array_equal(next(resume_iterator(iter(each), position)), wanted[70])
