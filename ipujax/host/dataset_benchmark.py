"""Benchmarks of data sets and infeeds: their throughput per epoch, as JSON."""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, SupportsIndex

import jax
import numpy as np

from ipujax.ground import Checks, ConfigTypeError, FeedError, OutOfRangeError, PyTree, Worker
from ipujax.host.elements import convert_leaf_to_array, iterate_dataset
from ipujax.host.keys import keys_to_words

_check = Checks(ConfigTypeError, FeedError)
_PREFETCH_DEPTH = 8
# An interrupted benchmark waits so long for its thread: a data set may never answer.
_END_SECONDS = 1.0


class BenchmarkText(str):
    """The JSON text of a benchmark, whose `[0]` is the text as well.

    In the original a session gives a list of one text.
    """

    __slots__ = ()

    def __getitem__(self, index: SupportsIndex | slice) -> str:
        return str(self) if index == 0 else super().__getitem__(index)


@_check.guard
def dataset_benchmark(
    dataset: object,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    apply_options: bool = True,
    do_memcpy: bool = True,
) -> str:
    """Measures how fast a data set delivers.

    The data set is read from front to back once, over all epochs: it needs `number_of_epochs *
    elements_per_epochs` elements.

    Args:
      dataset: an iterable of pytrees of arrays, or a zero-argument callable that gives one.
      number_of_epochs: how many epochs to measure.
      elements_per_epochs: how many elements each of them takes.
      print_stats: print a line for each epoch.
      apply_options: read as an infeed does, ahead of the consumer in a thread of its own, which
        is faster where making an element does not hold Python's lock; otherwise one element is
        made when it is asked for.
      do_memcpy: copy each array, as it is copied for the device.

    Returns:
      JSON: `{"epochs": [{"elements_processed": ..., "total_bytes_processed": ...,
      "time_elapsed": seconds, "elements_per_second": ..., "bandwidth": GB/s}, ...]}`. Its `[0]` is
      the same text: the original's session gives a list.

    Raises:
      ConfigTypeError: (a `TypeError`) if `dataset` is no data set, or a count no integer.
      FeedError: (a `ValueError`) if a count is less than 1, or elements differ in shapes or types.
      OutOfRangeError: if the data set ends too early.
    """
    if _is_infeed(dataset):
        raise ConfigTypeError("dataset is an IPUInfeedQueue: use infeed_benchmark for that")
    if isinstance(dataset, (str, bytes, Mapping)) or not (
        isinstance(dataset, Iterable) or callable(dataset)
    ):
        raise ConfigTypeError(
            f"dataset is {dataset!r}, but must be an iterable of pytrees of arrays or a "
            "zero-argument callable that gives one"
        )
    epochs, count = _check_benchmark_counts(number_of_epochs, elements_per_epochs)
    limited = itertools.islice(iterate_dataset(dataset), epochs * count)
    source = _prefetch_in_thread(limited) if apply_options else _iterate_directly(limited)
    return _measure_epochs(source, epochs, count, print_stats, do_memcpy)


@_check.guard
def infeed_benchmark(
    infeed_queue: Any,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    do_memcpy: bool = True,
) -> str:
    """Measures how fast an infeed delivers, through a thread that reads ahead.

    The elements are taken out of the queue, as if a loop had read them.

    Args:
      infeed_queue: an `IPUInfeedQueue`.
      number_of_epochs: how many epochs to measure.
      elements_per_epochs: how many elements each of them takes.
      print_stats: print a line for each epoch.
      do_memcpy: copy each array, as it is copied for the device.

    Returns:
      JSON, as `dataset_benchmark` gives it.

    Raises:
      ConfigTypeError: (a `TypeError`) if `infeed_queue` is no `IPUInfeedQueue`, or a count no
        integer.
      FeedError: (a `ValueError`) if a count is less than 1.
      OutOfRangeError: if the data set ends too early.
    """
    if not _is_infeed(infeed_queue):
        raise ConfigTypeError(
            f"infeed_queue is {infeed_queue!r}, but must be an IPUInfeedQueue; dataset_benchmark "
            "takes data sets"
        )
    epochs, count = _check_benchmark_counts(number_of_epochs, elements_per_epochs)
    source = _prefetch_in_thread(infeed_queue._export_elements(epochs * count))
    return _measure_epochs(source, epochs, count, print_stats, do_memcpy)


def _is_infeed(value: object) -> bool:
    from ipujax.host.infeed_queue import IPUInfeedQueue

    return isinstance(value, IPUInfeedQueue)


def _check_benchmark_counts(
    number_of_epochs: object, elements_per_epochs: object
) -> tuple[int, int]:
    epochs = _check.require_integer(number_of_epochs, "number_of_epochs", 1)
    return epochs, _check.require_integer(elements_per_epochs, "elements_per_epochs", 1)


def _measure_epochs(
    source: Generator[object, None, None],
    epochs: int,
    count: int,
    print_stats: bool,
    do_memcpy: bool,
) -> str:
    sink = _Sink(do_memcpy)
    measured: list[dict[str, float]] = []
    with contextlib.closing(source):
        for epoch in range(epochs):
            stats = _measure_epoch(source, sink, count, epochs * count)
            measured.append(stats)
            if print_stats:
                print(
                    f"epoch {epoch}: {stats['elements_processed']} elements in "
                    f"{stats['time_elapsed']:.6f} s, {stats['elements_per_second']:.1f} "
                    f"elements/s, {stats['bandwidth']:.6f} GB/s"
                )
    return BenchmarkText(json.dumps({"epochs": measured}))


def _measure_epoch(
    source: Iterator[object], sink: _Sink, count: int, total: int
) -> dict[str, float]:
    size, count_before = 0, sink.count
    start = time.perf_counter()
    for element in itertools.islice(source, count):
        size += sink.consume_element(element)
    elapsed = max(time.perf_counter() - start, 1e-9)  # a clock may be too coarse to see it
    if sink.count - count_before < count:
        raise OutOfRangeError(
            f"the data set ended after {sink.count} elements, but the benchmark takes {total}: "
            "repeat it (itertools.cycle), or ask for fewer epochs or elements",
            requested=total,
            available=sink.count,
        )
    return {
        "elements_processed": count,
        "total_bytes_processed": size,
        "time_elapsed": elapsed,
        "elements_per_second": count / elapsed,
        "bandwidth": size / elapsed / 1e9,
    }


class _Sink:
    """A consumer of elements that checks and copies them as a device would.

    Attributes:
      count: how many elements it has taken.
    """

    def __init__(self, copies: bool):
        self._copies = copies
        self._buffers: list[np.ndarray] = []
        self.count = 0

    def consume_element(self, element: object) -> int:
        """Takes an element and returns its size in bytes."""
        leaves = [convert_leaf_to_array(leaf) for leaf in jax.tree.leaves(keys_to_words(element))]
        if not self.count:
            self._buffers = [np.empty_like(leaf) for leaf in leaves]
        form, first = _describe_arrays(leaves), _describe_arrays(self._buffers)
        if form != first:
            raise FeedError(
                f"element {self.count} has arrays {form}, but element 0 has {first}; with "
                "batches, set drop_remainder"
            )
        if self._copies:
            for buffer, leaf in zip(self._buffers, leaves, strict=True):
                np.copyto(buffer, leaf)
        self.count += 1
        return sum(leaf.nbytes for leaf in leaves)


def _describe_arrays(leaves: list[np.ndarray]) -> list[str]:
    return [f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves]


def _iterate_directly(elements: Iterable[object]) -> Generator[PyTree, None, None]:
    yield from elements


def _prefetch_in_thread(elements: Iterable[object]) -> Generator[PyTree, None, None]:
    """Yields elements that a thread reads ahead; the thread ends with the generator."""
    ready: queue.Queue[Any] = queue.Queue(_PREFETCH_DEPTH)
    stop = threading.Event()

    def offer_item(item: tuple[str, Any]) -> bool:
        while not stop.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(item, timeout=0.05)
                return True
        return False

    def read_elements() -> None:
        try:
            for element in elements:
                if not offer_item(("element", element)):
                    return
            offer_item(("end", None))
        except BaseException as error:  # whatever the user's code raises, the reader gets
            offer_item(("error", error))

    worker = Worker("ipujax-benchmark")
    worker.submit_task(read_elements)
    try:
        while (item := ready.get())[0] == "element":
            yield item[1]
        if item[0] == "error":
            raise item[1]
    finally:
        stop.set()
        worker.stop_after_tasks()
        worker.thread.join(_END_SECONDS)
