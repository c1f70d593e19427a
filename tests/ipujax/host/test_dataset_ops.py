"""`BufferDataset`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import ipujax as ipu
from ipujax.data.ops import dataset_ops


@hypothesis.given(st.integers(0, 40), st.integers(1, 12))
def test_a_multiple_of_the_buffer_size_is_there(length: int, size: int) -> None:
    dataset = dataset_ops.BufferDataset(range(length), size)
    expected = list(range(length // size * size))
    assert list(dataset) == expected
    assert list(dataset) == expected  # a range can be read again


def test_callables_are_called_for_each_iteration() -> None:
    calls: list[int] = []

    def elements() -> Iterator[int]:
        calls.append(1)
        yield from range(5)

    dataset = dataset_ops.BufferDataset(elements, 2)
    assert calls == []
    assert list(dataset) == [0, 1, 2, 3] == list(dataset)
    assert len(calls) == 2


def test_an_iterator_can_be_read_once() -> None:
    dataset = dataset_ops.BufferDataset(iter(range(4)), 2)
    assert list(dataset) == [0, 1, 2, 3]
    assert list(dataset) == []


def test_endless_data_sets_are_read_buffer_by_buffer() -> None:
    source = itertools.count()
    assert list(itertools.islice(dataset_ops.BufferDataset(source, 3), 4)) == [0, 1, 2, 3]
    assert next(source) == 6


def test_it_feeds_a_loop() -> None:
    dataset = dataset_ops.BufferDataset((np.float32(i) for i in range(7)), 3)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    run = ipu.compile(lambda total: ipu.loops.repeat(6, lambda total, x: total + x, total, infeed))
    assert run(np.float32(0)) == 15
    with pytest.raises(ipu.errors.OutOfRangeError):
        run(np.float32(0))


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((3, 2), TypeError, "input_dataset is 3"),
        (([], 0), ValueError, "buffer_size is 0"),
        (([], -1), ValueError, "buffer_size is -1"),
        (([], True), TypeError, "buffer_size is True"),
        (([], 2.0), TypeError, "buffer_size is 2.0"),
    ],
)
def test_arguments_are_checked(arguments: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        dataset_ops.BufferDataset(*arguments)
