"""Reading ahead: how far, how often, what comes of errors, and what is freed."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from ipujax import poptorch
from ipujax.poptorch import DataLoaderMode


class Counted:
    """Numbers; counts how many have been read, in all, and how often it was begun anew."""

    def __init__(self, length: int, broken_at: int | None = None):
        self.length, self.broken_at = length, broken_at
        self.read = self.epochs = 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        self.epochs += 1
        for index in range(self.length):
            if index == self.broken_at:
                raise ArithmeticError(f"element {index} is broken")
            self.read += 1
            yield torch.tensor([index])


def wait_until(condition: Any) -> None:
    """Lets other threads run until something holds; fails if it never does."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def numbers(elements: Any) -> list[int]:
    return [int(element[0]) for element in elements]


def filled(accessor: Any) -> int:
    """How many elements wait in the ring."""
    return sum(accessor._worker._data_buffers.indices_mem)


def test_every_iteration_gives_all_elements() -> None:
    dataset = Counted(7)
    accessor = poptorch.AsynchronousDataAccessor(dataset)
    assert len(accessor) == 7
    for _ in range(3):
        assert numbers(accessor) == list(range(7))
    with pytest.raises(StopIteration):
        next(accessor)
    accessor.terminate()


def test_an_iteration_that_is_left_begins_anew() -> None:
    accessor = poptorch.AsynchronousDataAccessor(Counted(9), buffer_size=2)
    for element in accessor:
        if int(element[0]) == 4:
            break
    assert numbers(accessor) == list(range(9))
    accessor.terminate()


@pytest.mark.parametrize("early", [True, False])
def test_only_a_preload_reads_before_it_is_asked(early: bool) -> None:
    dataset = Counted(20)
    accessor = poptorch.AsynchronousDataAccessor(dataset, buffer_size=5, early_preload=early)
    if early:
        wait_until(lambda: filled(accessor) == 5)
    assert dataset.read == (5 if early else 1)
    iterator = iter(accessor)
    wait_until(lambda: filled(accessor) == 5)
    next(iterator)
    wait_until(lambda: dataset.read == 6)
    assert filled(accessor) == 5
    accessor.terminate()


@pytest.mark.parametrize("load_indefinitely", [True, False])
def test_the_next_epoch_is_read_ahead_if_wanted(load_indefinitely: bool) -> None:
    dataset = Counted(4)
    accessor = poptorch.AsynchronousDataAccessor(dataset, load_indefinitely=load_indefinitely)
    list(accessor)
    if load_indefinitely:
        wait_until(lambda: dataset.read == 7)
    assert dataset.epochs == 1 + load_indefinitely
    assert numbers(accessor) == list(range(4))
    accessor.terminate()


def test_elements_have_other_sizes_if_wanted() -> None:
    accessor = poptorch.AsynchronousDataAccessor(Counted(7), rebatched_size=3)
    assert [element.tolist() for element in accessor] == [[0, 1, 2], [3, 4, 5]]
    assert len(accessor) == 2


def test_elements_stay_valid() -> None:
    read = list(poptorch.AsynchronousDataAccessor(Counted(6), buffer_size=1))
    assert numbers(read) == list(range(6))


def test_a_structure_stays_what_it_is() -> None:
    class Pair:
        def __init__(self, first: Any, second: Any):
            self.first, self.second = first, second

    class Parser(poptorch.ICustomArgParser):
        def yieldTensors(self, struct: Any) -> Iterator[Any]:
            yield struct.first
            yield struct.second

        def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[Any]) -> Any:
            return Pair(*tensor_iterator)

    poptorch.registerCustomArgParser(Pair, Parser())
    try:
        pairs = [Pair(torch.tensor([i]), torch.tensor([-i])) for i in range(4)]
        both = poptorch.AsynchronousDataAccessor(pairs, rebatched_size=2)
        assert [pair.second.tolist() for pair in both] == [[0, -1], [-2, -3]]
    finally:
        poptorch.registerCustomArgParser(Pair, None)
    nested = [{"a": torch.ones(1), "b": [torch.zeros(1), "text"]}]
    assert list(poptorch.AsynchronousDataAccessor(nested)) == nested
    with pytest.raises(poptorch.Error, match="ICustomArgParser"):
        poptorch.registerCustomArgParser(Pair, object())


def test_a_first_element_that_cannot_be_read_is_told_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(poptorch.Error, match="failed to start") as caught:
        poptorch.AsynchronousDataAccessor(Counted(3, broken_at=0))
    assert "ArithmeticError: element 0 is broken" in str(caught.value)
    assert isinstance(caught.value.__cause__, ArithmeticError)
    assert "element 0 is broken" in caplog.text
    with pytest.raises(poptorch.Error, match="failed to start"):
        poptorch.AsynchronousDataAccessor(3)  # nothing that can be iterated over
    with pytest.raises(poptorch.Error, match="The Dataset is empty"):
        poptorch.AsynchronousDataAccessor([])


def test_a_later_error_comes_after_the_elements_before_it() -> None:
    accessor = poptorch.AsynchronousDataAccessor(Counted(5, broken_at=2))
    for _ in range(2):
        elements = iter(accessor)
        assert [int(next(elements)[0]) for _ in range(2)] == [0, 1]
        with pytest.raises(poptorch.Error, match="error occurred in the data fetcher") as caught:
            next(elements)
        assert "element 2 is broken" in str(caught.value)
    accessor.terminate()


def test_a_loader_and_its_thread_are_freed() -> None:
    dataset = torch.arange(20.0)
    before = threading.active_count()
    gc.disable()  # no cycle may need it
    try:
        loader = poptorch.DataLoader(poptorch.Options(), dataset, mode=DataLoaderMode.Async)
        next(iter(loader))
        gone = weakref.ref(loader)
        del loader
        assert gone() is None
        wait_until(lambda: threading.active_count() == before)
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_a_loader_can_be_read_beside_its_accessor() -> None:
    loader = poptorch.DataLoader(poptorch.Options(), torch.arange(6.0), num_workers=1)
    accessor = poptorch.AsynchronousDataAccessor(loader)
    for _ in range(2):
        both = [(float(ahead), float(now)) for ahead, now in zip(accessor, loader, strict=True)]
        assert both == [(float(i), float(i)) for i in range(6)]
    accessor.terminate()


def test_an_iteration_keeps_its_loader() -> None:
    def loader() -> Any:
        return poptorch.DataLoader(poptorch.Options(), torch.arange(4.0), mode=DataLoaderMode.Async)

    assert [float(batch) for batch in loader()] == [0.0, 1.0, 2.0, 3.0]


def test_what_was_terminated_says_so() -> None:
    accessor = poptorch.AsynchronousDataAccessor(Counted(3))
    accessor.terminate()
    accessor.terminate()
    with pytest.raises(poptorch.Error, match="was terminated"):
        iter(accessor)


def test_arguments_are_checked() -> None:
    loader = poptorch.DataLoader(
        poptorch.Options(), torch.arange(4.0), batch_size=2, mode=DataLoaderMode.Async
    )
    with pytest.raises(poptorch.Error, match="already uses"):
        poptorch.AsynchronousDataAccessor(loader)
    with_rest = poptorch.DataLoader(
        poptorch.Options(), torch.arange(5.0), batch_size=2, drop_last=False
    )
    assert [len(batch) for batch in poptorch.AsynchronousDataAccessor(with_rest)] == [2, 2, 1]
    again = poptorch.AsynchronousDataAccessor(with_rest, rebatched_size=3)
    assert [batch.tolist() for batch in again] == [[0.0, 1.0, 2.0], [3.0, 4.0]]
    for wrong in ({"rebatched_size": 1}, {"buffer_size": 0}, {"sharing_strategy": "Fork"}):
        with pytest.raises(poptorch.Error):
            poptorch.AsynchronousDataAccessor(Counted(3), **wrong)
    with pytest.raises(poptorch.Error, match="async_options has rebatched_size"):
        poptorch.DataLoader(
            poptorch.Options(),
            torch.arange(4.0),
            mode=DataLoaderMode.Async,
            async_options={"rebatched_size": 2},
        )
