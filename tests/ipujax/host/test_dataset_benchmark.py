"""The benchmarks of data sets and infeeds."""

from __future__ import annotations

import gc
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ipujax.dataset_benchmark import dataset_benchmark, infeed_benchmark
from ipujax.errors import OutOfRangeError
from ipujax.ipu_infeed_queue import IPUInfeedQueue

FIELDS = {
    "elements_processed",
    "total_bytes_processed",
    "time_elapsed",
    "elements_per_second",
    "bandwidth",
}


def elements() -> Iterator[dict[str, Any]]:
    for i in itertools.count():
        yield {"x": np.full((4, 2), i, np.float32), "y": np.int32(i)}


def infeed() -> IPUInfeedQueue:
    return IPUInfeedQueue(elements)


BENCHMARKS: dict[str, Callable[..., str]] = {
    "dataset": lambda *args, **kwargs: dataset_benchmark(elements, *args, **kwargs),
    "infeed": lambda *args, **kwargs: infeed_benchmark(infeed(), *args, **kwargs),
}


@pytest.fixture(autouse=True)
def no_thread_is_left(little_garbage: None) -> Iterator[None]:
    before = threading.active_count()
    yield
    gc.collect()  # the threads of infeeds end when these are freed
    patience = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < patience:
        time.sleep(0.001)
    assert threading.active_count() <= before


@pytest.fixture(params=BENCHMARKS.values(), ids=BENCHMARKS)
def benchmark(request: pytest.FixtureRequest) -> Callable[..., str]:
    return request.param


@pytest.mark.exhaustive
@pytest.mark.fact("dataset_bench.dataset")
def test_each_epoch_has_its_numbers(benchmark: Callable[..., str]) -> None:
    epochs = json.loads(benchmark(10, 1000, print_stats=False))["epochs"]
    assert len(epochs) == 10
    for epoch in epochs:
        assert set(epoch) == FIELDS
        assert all(value > 0 for value in epoch.values())
        assert epoch["elements_processed"] == 1000
        assert epoch["total_bytes_processed"] == 1000 * (8 * 4 + 4)
        speed = epoch["elements_per_second"] * epoch["time_elapsed"]
        assert speed == pytest.approx(1000)
        assert epoch["bandwidth"] * epoch["time_elapsed"] == pytest.approx(36000 / 1e9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", list(itertools.product([False, True], repeat=2)))
def test_options_change_how_not_what(options: tuple[bool, bool]) -> None:
    prefetch, copies = options
    threads: set[str] = set()

    def watched() -> Iterator[Any]:
        for element in itertools.islice(elements(), 6):
            threads.add(threading.current_thread().name)
            yield element

    text = dataset_benchmark(
        watched, 2, 3, print_stats=False, apply_options=prefetch, do_memcpy=copies
    )
    assert [e["elements_processed"] for e in json.loads(text)["epochs"]] == [3, 3]
    assert threads == {"ipujax-benchmark" if prefetch else threading.current_thread().name}


@pytest.mark.sampled(1)
def test_stats_are_printed(
    benchmark: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark(2, 3)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" in ")[0] for line in lines] == [
        "epoch 0: 3 elements",
        "epoch 1: 3 elements",
    ]
    benchmark(2, 3, False)
    assert capsys.readouterr().out == ""


def test_the_infeed_goes_on_after_the_elements_taken() -> None:
    queue = infeed()
    infeed_benchmark(queue, 2, 3, print_stats=False)
    (element,) = queue._export_elements(1)
    assert element["y"] == 6


@pytest.mark.sampled(1)
@pytest.mark.parametrize("prefetch", [True, False])
def test_a_data_set_that_ends(prefetch: bool) -> None:
    short = [np.zeros(2)] * 5
    with pytest.raises(OutOfRangeError, match=r"after 5 elements, .* takes 6") as info:
        dataset_benchmark(short, 2, 3, print_stats=False, apply_options=prefetch)
    assert (info.value.requested, info.value.available) == (6, 5)


def test_an_infeed_that_ends() -> None:
    with pytest.raises(OutOfRangeError):
        infeed_benchmark(IPUInfeedQueue([np.zeros(2)] * 5), 2, 3, print_stats=False)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("prefetch", [True, False])
def test_errors_of_the_data_set_come_through(prefetch: bool) -> None:
    def broken() -> Iterator[Any]:
        yield np.zeros(2)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        dataset_benchmark(broken, 2, 3, print_stats=False, apply_options=prefetch)


def test_elements_have_one_form() -> None:
    uneven = itertools.cycle([np.zeros(2), np.zeros(3)])
    with pytest.raises(ValueError, match=r"element 1 has .*\[3\].* element 0 has .*\[2\]"):
        dataset_benchmark(uneven, 1, 20, print_stats=False)


def test_empty_arrays_are_data_too() -> None:
    text = dataset_benchmark([np.zeros((4, 0))] * 2, 1, 2, print_stats=False)
    assert json.loads(text)["epochs"][0]["total_bytes_processed"] == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("counts", [(0, 1), (1, 0), (-1, 1)])
def test_counts_are_positive(benchmark: Callable[..., str], counts: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        benchmark(*counts)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("counts", [(1.0, 1), (1, True), ("1", 1)])
def test_counts_are_integers(benchmark: Callable[..., str], counts: tuple[Any, Any]) -> None:
    with pytest.raises(TypeError, match="must be an integer"):
        benchmark(*counts)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dataset", [3, "text", {"x": np.zeros(2)}, None])
def test_a_data_set_is_needed(dataset: Any) -> None:
    with pytest.raises(TypeError, match="dataset is"):
        dataset_benchmark(dataset, 1, 1)
    with pytest.raises(TypeError, match="must be an IPUInfeedQueue"):
        infeed_benchmark(dataset, 1, 1)


def test_each_kind_has_its_benchmark() -> None:
    with pytest.raises(TypeError, match="use infeed_benchmark"):
        dataset_benchmark(infeed(), 1, 1)
    with pytest.raises(TypeError, match="dataset_benchmark takes data sets"):
        infeed_benchmark([np.zeros(2)], 1, 1)


def test_the_text_is_taken_as_from_a_session() -> None:
    """The original's session gives a list of one text, of which listings take `[0]`."""
    dataset = [np.ones(3, np.float32)] * 4
    for text in (
        dataset_benchmark(dataset, 2, 2, print_stats=False),
        infeed_benchmark(IPUInfeedQueue(dataset), 2, 2, print_stats=False),
    ):
        assert json.loads(text[0]) == json.loads(text)
        assert len(json.loads(text[0])["epochs"]) == 2
        assert text[1:9] == '"epochs"'
