"""What a data set raises, at any element, leaves a queue that can be used again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import FeedError, LoopTypeError, OutOfRangeError
from ipujax.loops import repeat
from tests.ipujax.feeding import infeed, outfeed

f32 = np.float32
INTERRUPTS = [KeyboardInterrupt, SystemExit]
KINDS = [ValueError, MemoryError, *INTERRUPTS]
raising = pytest.mark.parametrize("kind", KINDS)


def failing(kind: type[BaseException], at: int, times: int = 1) -> Callable[[], Iterator[Any]]:
    """A data set that raises at an element as often as asked for, in iterations of its own."""
    left = [times]

    def dataset() -> Iterator[Any]:
        for k in range(20):
            if k == at and left[0]:
                left[0] -= 1
                raise kind("not now")
            yield f32(k)

    return dataset


class Stream:
    """An iterator that goes on after it has raised, as one that reads from a network does."""

    def __init__(self, kind: type[BaseException], at: int):
        self._kind, self._at, self._next = kind, at, 0

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        if self._next == self._at:
            self._at = -1
            raise self._kind("not now")
        self._next += 1
        return f32(self._next - 1)


def copied(source: Any, n: int = 5) -> np.ndarray:
    """What comes out of a loop that sends each element on as it is."""
    sink = outfeed()
    ipu.compile(lambda: repeat(n, lambda x: sink.enqueue(x), [], source))()
    return sink.dequeue()


@raising
def test_at_the_first_element_the_next_program_starts_anew(kind: Any) -> None:
    source = infeed(failing(kind, 0))
    with pytest.raises(kind, match="not now"):
        copied(source)
    np.testing.assert_array_equal(copied(source), np.arange(5))


@pytest.mark.sampled(3)
@raising
@pytest.mark.parametrize("at", [0, 3])
def test_the_initializer_always_resets(kind: Any, at: int) -> None:
    source = infeed(failing(kind, at, times=2))
    restart = source.initializer
    for _ in range(2):
        with pytest.raises(kind, match="not now"):
            copied(source)
        restart()
    np.testing.assert_array_equal(copied(source), np.arange(5))


@pytest.mark.parametrize("bad", [np.zeros(2, f32), np.int32(1), "text", (f32(1), f32(2))])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_data_set_that_failed_once_is_used_again(at: int, bad: Any) -> None:
    data: list[Any] = [*np.arange(5, dtype=f32)]
    data.insert(at, bad)
    source = infeed(data)
    restart = source.initializer
    run = ipu.compile(lambda: repeat(5, lambda x: None, [], source))
    with pytest.raises((FeedError, LoopTypeError)):
        run()
    del data[at]
    restart()
    np.testing.assert_array_equal(copied(source), np.arange(5))


def test_a_data_set_that_is_mended_by_other_elements_takes_another_compilation() -> None:
    data: list[Any] = [f32(1), np.int32(2), np.int32(3)]
    source = infeed(data)
    restart = source.initializer

    def total() -> Any:
        return repeat(2, lambda s, x: s + x.astype(f32), [f32(0)], source)

    run = ipu.compile(total)
    with pytest.raises(FeedError, match="leaf 0 of element 1 is int32, the first element's was fl"):
        run()
    del data[0]
    restart()
    with pytest.raises(FeedError, match=r"now gives .*int32.* compiled for .*float32.*") as caught:
        run()
    assert "ipu.compile(fn)" in caught.value.fix
    assert ipu.compile(total)() == 5


def test_the_initializer_resets_what_is_no_element() -> None:
    data: list[Any] = ["text"]
    source = infeed(data)
    restart = source.initializer
    for _ in range(2):
        with pytest.raises(FeedError, match="no array of numbers"):
            copied(source)
    data[:] = np.arange(5, dtype=f32)
    restart()
    np.testing.assert_array_equal(copied(source), np.arange(5))


def test_a_data_set_that_was_empty_at_first() -> None:
    data: list[Any] = []
    source = infeed(data)
    with pytest.raises(OutOfRangeError, match="ended after 0"):
        copied(source)
    data.extend(np.arange(5, dtype=f32))
    np.testing.assert_array_equal(copied(source), np.arange(5))


@pytest.mark.parametrize("kind", INTERRUPTS)
def test_interrupts_are_not_remembered(kind: Any) -> None:
    source, sink = infeed(Stream(kind, 3)), outfeed()
    run = ipu.compile(lambda: repeat(5, lambda x: sink.enqueue(x), [], source))
    with pytest.raises(kind, match="not now"):
        run()
    np.testing.assert_array_equal(sink.dequeue(), np.arange(3))
    run()
    np.testing.assert_array_equal(sink.dequeue(), np.arange(3, 8))


@pytest.mark.parametrize("kind", [ValueError, MemoryError])
@pytest.mark.parametrize("at", [0, 3])
def test_errors_are(kind: Any, at: int) -> None:
    """A generator is over once it has raised; why stays known."""
    source = infeed(failing(kind, at)())
    for _ in range(2):
        with pytest.raises(kind, match="not now"):
            copied(source)


@raising
def test_in_what_makes_the_iterator(kind: Any) -> None:
    left = [1]

    def dataset() -> Any:
        if left:
            left.clear()
            raise kind("not now")
        return np.arange(5, dtype=f32)

    source = infeed(dataset)
    with pytest.raises(kind, match="not now"):
        copied(source)
    np.testing.assert_array_equal(copied(source), np.arange(5))


@raising
def test_in_the_body(kind: Any) -> None:
    source, left = infeed(np.arange(5, dtype=f32)), [1]

    def body(v: Any, x: Any) -> Any:
        if left:
            left.clear()
            raise kind("not now")
        return v + x

    run = ipu.compile(lambda v: repeat(5, body, [v], source))
    with pytest.raises(kind, match="not now"):
        run(f32(0))
    assert run(f32(0)) == 10


def test_the_initializer_leaves_a_data_set_that_never_answers() -> None:
    """The thread that waits for it is not waited for."""
    waits, asked = threading.Event(), threading.Event()

    def dataset() -> Iterator[Any]:
        yield f32(7)
        asked.set()
        waits.wait()
        yield f32(9)

    source = infeed(dataset)
    restart = source.initializer
    run = ipu.compile(lambda n, v: repeat(n, lambda v, x: v + x, [v], source))
    assert run(np.int32(1), f32(0)) == 7
    stuck = threading.Thread(target=lambda: run(np.int32(1), f32(0)), daemon=True)
    stuck.start()
    assert asked.wait(30)
    restart()
    assert run(np.int32(1), f32(0)) == 7
    waits.set()
    stuck.join(30)
    assert not stuck.is_alive()


def test_a_program_whose_kernel_fails_can_run_again() -> None:
    source, sink, left = infeed(np.arange(6, dtype=f32)), outfeed(), [1]

    def check(x: Any) -> Any:
        if x == 2 and left:
            left.clear()
            raise MemoryError("not now")
        return x

    def body(x: Any) -> None:
        sink.enqueue(jax.pure_callback(check, jax.ShapeDtypeStruct((), f32), x))

    run = ipu.compile(lambda n: repeat(n, body, [], source))
    with pytest.raises(Exception, match="not now"):
        run(np.int32(3))
    sink.dequeue()
    run(np.int32(1))
    assert sink.dequeue() in range(6)
