"""Queues: what elements may be, how they stream, and who may wait for whom."""

from __future__ import annotations

import _thread
import collections
import gc
import itertools
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import FeedError, OutOfRangeError
from ipujax.ipu_outfeed_queue import IPUOutfeedMode
from ipujax.loops import repeat
from tests.ipujax.feeding import (
    LAST,
    compilations,
    configure,
    full,
    incr,
    infeed,
    outfeed,
)

ENGINES = pytest.mark.parametrize("engine", ["fused", "replay"])
MODES = pytest.mark.parametrize("mode", list(IPUOutfeedMode))
f32 = np.float32


def copied(source: Any, n: int, engine: str = "auto", mode: IPUOutfeedMode | None = None) -> Any:
    """What comes out of a loop that sends each element on as it is."""
    sink = outfeed(mode or IPUOutfeedMode.ALL)

    def body(*args: Any, **kwargs: Any) -> None:
        sink.enqueue((args, kwargs))

    ipu.compile(lambda: repeat(n, body, [], source), engine=engine)()
    args, kwargs = sink.dequeue()
    return kwargs or (args[0] if len(args) == 1 else args)


# --- what elements may be -------------------------------------------------------------------------


class Sample(NamedTuple):
    image: Any
    label: Any


def sample(k: int) -> Any:
    return np.full(2, k, f32), np.int32(k)


@pytest.mark.sampled(1)
@ENGINES
def test_elements_of_many_forms(engine: str) -> None:
    numbers = np.arange(5)
    images, labels = np.stack([np.full(2, k) for k in numbers]), numbers

    def through(make: Callable[[int], Any]) -> Any:
        return copied(infeed([make(k) for k in numbers]), 5, engine)

    np.testing.assert_array_equal(through(lambda k: sample(k)[0]), images)
    pair = through(sample)
    np.testing.assert_array_equal(pair[0], images)
    np.testing.assert_array_equal(pair[1], labels)
    listed = through(lambda k: list(sample(k)))
    np.testing.assert_array_equal(listed[1], labels)
    named = through(lambda k: Sample(*sample(k)))  # one argument, as any other class
    assert isinstance(named, Sample)
    np.testing.assert_array_equal(named.image, images)
    by_name = through(lambda k: {"image": sample(k)[0], "label": sample(k)[1]})
    assert set(by_name) == {"image", "label"}
    np.testing.assert_array_equal(by_name["label"], labels)
    nested = through(lambda k: ({"a": (sample(k)[0], [sample(k)[1]])}, Sample(*sample(k))))
    np.testing.assert_array_equal(nested[0]["a"][1][0], labels)
    np.testing.assert_array_equal(nested[1].image, images)
    ordered = through(lambda k: collections.OrderedDict(b=f32(k), a=f32(-k)))
    np.testing.assert_array_equal(ordered["a"], -labels)


@pytest.mark.sampled(8)
@ENGINES
@pytest.mark.parametrize(
    "dtype",
    [np.bool_, np.float16, ml_dtypes.bfloat16, np.float32, np.int8, np.uint8, np.int16, np.int32,
     np.uint32, np.complex64],
)  # fmt: skip
def test_dtypes_go_through_unchanged(dtype: Any, engine: str) -> None:
    data = (np.arange(12).reshape(4, 3) % 5).astype(dtype)
    got = copied(infeed(list(data)), 4, engine)
    assert got.dtype == data.dtype
    np.testing.assert_array_equal(got, data)


@pytest.mark.parametrize(
    ("given", "narrowed"),
    [(np.int64, np.int32), (np.float64, np.float32), (np.uint64, np.uint32),
     (np.complex128, np.complex64)],
)  # fmt: skip
def test_wide_types_are_narrowed(given: Any, narrowed: Any) -> None:
    data = np.arange(4).astype(given)
    got = copied(infeed(list(data)), 4)
    assert got.dtype == narrowed
    np.testing.assert_array_equal(got, data)


def test_python_numbers_are_elements() -> None:
    assert copied(infeed([1, 2, 3]), 3).dtype == np.int32
    np.testing.assert_array_equal(copied(infeed([1.5, 2.5]), 2), [1.5, 2.5])
    np.testing.assert_array_equal(copied(infeed([True, False]), 2), [True, False])


def test_wide_types_stay_wide_with_x64() -> None:
    with jax.enable_x64(True):
        got = copied(infeed(list(np.arange(4))), 4)
    assert got.dtype == np.int64


@ENGINES
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2)])
def test_elements_of_size_zero(shape: tuple[int, ...], engine: str) -> None:
    data = [(np.zeros(shape, f32), f32(k)) for k in range(5)]
    nothing, numbers = copied(infeed(data), 5, engine)
    assert nothing.shape == (5, *shape)
    np.testing.assert_array_equal(numbers, np.arange(5))


def test_jax_arrays_and_views_are_elements() -> None:
    data = np.arange(12, dtype=f32).reshape(4, 3)
    np.testing.assert_array_equal(copied(infeed(list(jnp.asarray(data))), 4), data)
    np.testing.assert_array_equal(copied(infeed([row[::-1] for row in data]), 4), data[:, ::-1])
    np.testing.assert_array_equal(copied(infeed([data.T] * 2), 2), [data.T] * 2)


class Tensor:
    """What a torch tensor shows: it cannot be turned into an array until it is detached."""

    def __init__(self, value: np.ndarray):
        self._value = value

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> np.ndarray:
        return self._value

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


class DataLoader:
    """What a torch DataLoader shows: every `iter` starts anew."""

    def __init__(self, n: int):
        self.n, self.started = n, 0

    def __iter__(self) -> Iterator[list[Tensor]]:
        self.started += 1
        return ([Tensor(np.full(2, k, f32)), Tensor(np.int32(k))] for k in range(self.n))


class TfDataset:
    """What a tf.data.Dataset shows."""

    def as_numpy_iterator(self) -> Iterator[Any]:
        return iter(np.arange(4, dtype=f32))

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("gives eager tensors; as_numpy_iterator gives arrays")


def test_data_sets_of_other_libraries() -> None:
    loader = DataLoader(5)
    images, labels = copied(infeed(loader), 5)
    np.testing.assert_array_equal(images[:, 0], np.arange(5))
    np.testing.assert_array_equal(labels, np.arange(5))
    assert loader.started == 1
    np.testing.assert_array_equal(copied(infeed(TfDataset()), 4), np.arange(4))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "make",
    [
        lambda: [f32(k) for k in range(4)],
        lambda: tuple(f32(k) for k in range(4)),
        lambda: np.arange(4, dtype=f32),
        lambda: iter(np.arange(4, dtype=f32)),
        lambda: (f32(k) for k in range(4)),
        lambda: lambda: (f32(k) for k in range(4)),
        lambda: lambda: [f32(k) for k in range(4)],
        lambda: collections.deque(np.arange(4, dtype=f32)),
        lambda: map(f32, range(4)),
    ],
)
def test_kinds_of_data_sets(make: Callable[[], Any]) -> None:
    source = infeed(make())
    np.testing.assert_array_equal(copied(source, 3), [0, 1, 2])
    np.testing.assert_array_equal(copied(source, 1), [3])
    with pytest.raises(OutOfRangeError):  # it never restarts by itself
        copied(source, 1)


def test_the_initializer_starts_the_data_set_anew() -> None:
    source = infeed(DataLoader(5))
    restart = source.initializer
    restart()
    np.testing.assert_array_equal(copied(source, 3)[1], [0, 1, 2])
    restart()
    np.testing.assert_array_equal(copied(source, 4)[1], [0, 1, 2, 3])
    with pytest.raises(OutOfRangeError):
        copied(source, 2)
    restart()
    np.testing.assert_array_equal(copied(source, 5)[1], np.arange(5))


def test_changing_an_array_after_it_was_given_out() -> None:
    """Loaders reuse their buffers: what a queue has read ahead must not change with them."""
    buffer = np.zeros(3, f32)

    def dataset() -> Iterator[Any]:
        for k in range(50):
            buffer[:] = k
            yield buffer

    np.testing.assert_array_equal(copied(infeed(dataset), 50)[:, 0], np.arange(50))


# --- how much, and in which order -----------------------------------------------------------------


@ENGINES
@pytest.mark.parametrize("replicas", [1, 2])
def test_five_thousand_elements_in_order(replicas: int, engine: str) -> None:
    configure(replicas)
    n = 5000 if engine == "fused" else 600
    source, sink = infeed(f32(k) for k in itertools.count()), outfeed()

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        sink.enqueue((x, v))
        return v + 1

    assert ipu.compile(lambda: repeat(n, body, [0], source), engine=engine)() == n
    elements, steps = sink.dequeue()
    np.testing.assert_array_equal(elements.ravel(), np.arange(n * replicas))
    np.testing.assert_array_equal(steps.reshape(n, replicas)[:, -1], np.arange(n))


@pytest.mark.sampled(3)
@ENGINES
@pytest.mark.parametrize("depth", [1, 2, 7, 255])
def test_the_data_set_is_never_read_far_ahead(depth: int, engine: str) -> None:
    """`prefetch_depth` bounds how many elements have been read whose results are not out yet."""
    sink, counts, ahead = outfeed(), [0, 0], [0]

    def dataset() -> Iterator[Any]:
        for k in itertools.count():
            if sink.running:
                counts[1] += len(sink.dequeue())
                ahead.append(counts[0] - counts[1])
            counts[0] += 1
            yield f32(k)

    source = infeed(dataset, prefetch_depth=depth)
    run = ipu.compile(lambda: repeat(400, lambda x: sink.enqueue(x), [], source), engine=engine)
    run()
    assert counts[0] == 400  # the loop reads what it uses
    # One chunk is being read, one is ready, and a few are on their way out.
    assert max(ahead) <= 6 * depth + 1
    np.testing.assert_array_equal(copied(source, 3), [400, 401, 402])


def test_large_elements_make_small_chunks() -> None:
    """Memory holds a few chunks of at most some MiB, not the loop's elements."""
    megabytes, n = 4, 60
    element = np.ones((megabytes, 1 << 18), f32)

    def dataset() -> Iterator[Any]:
        for _ in range(n):
            yield element

    source = infeed(dataset)
    run = ipu.compile(lambda: repeat(n, lambda v, x: v + x[0, 0], [0.0], source))
    run.lower()
    tracemalloc.start()
    try:
        assert run() == n
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 << 20, f"{peak / 2**20:.0f} MiB at once for elements of {megabytes} MiB"


@pytest.mark.exhaustive
def test_memory_does_not_grow_with_the_number_of_iterations() -> None:
    def peak(n: int) -> int:
        source = infeed(itertools.repeat(np.ones(256, f32)))
        run = ipu.compile(lambda n: repeat(n, lambda v, x: v + x[0], [0.0], source))
        run(np.int32(3000))
        gc.collect()
        tracemalloc.start()
        try:
            run(np.int32(n))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = peak(3000), peak(144_000)
    # A few chunks more or less wait, as the threads happen to run; all elements are 144 MiB.
    assert many < 3 * few + (1 << 20) < 20 << 20


@pytest.mark.sampled(5)
@ENGINES
@pytest.mark.parametrize("n", [1, 2, 3, 100, 3000])
@pytest.mark.parametrize("replicas", [1, 2])
def test_last_keeps_the_last_of_any_number(n: int, replicas: int, engine: str) -> None:
    if engine == "replay" and n > 100:
        n = 300
    configure(replicas)
    sink = outfeed(LAST)

    def body(v: jax.Array) -> jax.Array:
        sink.enqueue({"v": v, "w": jnp.stack([v, -v])})
        return v + 1

    ipu.compile(lambda: repeat(n, body, [0]), engine=engine)()
    for _ in range(2):  # looking does not take it away
        last = sink.dequeue()
        lead = () if replicas == 1 else (2,)
        assert last["v"].shape == lead
        assert last["w"].shape == (*lead, 2)
        np.testing.assert_array_equal(np.ravel(last["v"]), [n - 1] * replicas)


@MODES
def test_a_loop_of_no_iterations_sends_nothing(mode: IPUOutfeedMode) -> None:
    sink = outfeed(mode)

    def body(v: jax.Array) -> jax.Array:
        sink.enqueue(v)
        return v

    run = ipu.compile(lambda n, v: repeat(n, body, [v]))
    run(np.int32(2), f32(5))
    run(np.int32(0), f32(6))
    assert np.ravel(sink.dequeue())[-1] == 5


@ENGINES
def test_what_comes_out_is_the_callers_own(engine: str) -> None:
    """Dequeued arrays do not change when the program runs again."""
    sink = outfeed()

    def body(v: jax.Array) -> jax.Array:
        sink.enqueue(v)
        return v + 1

    run = ipu.compile(lambda v: repeat(40, body, [v]), engine=engine)
    run(full(0))
    first = sink.dequeue()
    kept = first.copy()
    for start in range(5):
        run(full(start * 100))
    np.testing.assert_array_equal(first, kept)
    assert isinstance(first, np.ndarray)
    assert sink.dequeue().shape == (200, 4, 4)
    assert sink.dequeue().shape == (0, 4, 4)


@ENGINES
def test_arguments_are_not_donated_to_the_loop(engine: str) -> None:
    sink, start = outfeed(), jnp.ones(3)

    def body(v: jax.Array) -> jax.Array:
        sink.enqueue(v)
        return v * 2

    run = ipu.compile(lambda v: (v, repeat(3, body, [v])), engine=engine)
    for _ in range(2):
        same, result = run(start)
        np.testing.assert_array_equal(same, start)
        np.testing.assert_array_equal(result, [8, 8, 8])


def test_loops_of_many_lengths_compile_little() -> None:
    source, sink = infeed(incr(10, ())), outfeed()

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        sink.enqueue(x)
        return v + x

    run = ipu.compile(lambda n: repeat(n, body, [0.0], source))
    with ipu.events.record() as trace:
        for n in range(20):
            run(np.int32(n))
    assert compilations(trace) == 1
    assert sink.dequeue().shape == (190,)


# --- who reads while the loop runs ----------------------------------------------------------------


def in_a_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    return thread, results


@pytest.mark.sampled(1)
@ENGINES
def test_results_are_seen_while_the_next_element_is_awaited(engine: str) -> None:
    """However long the data set takes, what has been computed before is there to be read."""
    sink, seen, lags = outfeed(), [0], list[int]()
    done = threading.Event()
    deadline = time.monotonic() + 60  # it comes at once, but a busy machine lets threads wait

    def dataset() -> Iterator[Any]:
        for k in itertools.count():
            time.sleep(0.01)
            while k >= 10 and k - seen[0] > 4 and time.monotonic() < deadline:
                time.sleep(0.001)
            lags.append(k - seen[0])
            yield f32(k)

    def consume() -> None:
        while not done.is_set():
            for _ in sink:
                seen[0] += 1
            time.sleep(0.001)

    source = infeed(dataset)
    run = ipu.compile(lambda: repeat(30, lambda x: sink.enqueue(x), [], source), engine=engine)
    run.lower()
    thread, _ = in_a_thread(consume)
    run()
    done.set()
    thread.join(30)
    assert max(lags[10:]) <= 4, lags


@ENGINES
def test_a_data_set_that_stops_holds_back_no_result(engine: str) -> None:
    """The data set pauses, and goes on only when all that it gave before has come out."""
    sink, seen = outfeed(), [0]
    done = threading.Event()

    def dataset() -> Iterator[Any]:
        for k in range(200):
            patience = time.monotonic() + 30
            # 64 elements may be in one chunk with the one that is asked for now.
            while k == 150 and seen[0] < k - 64 and time.monotonic() < patience:
                time.sleep(0.001)
            assert k != 150 or seen[0] >= k - 64, f"{seen[0]} of {k} results came out"
            time.sleep(0.001)
            yield f32(k)

    def consume() -> None:
        while not done.is_set():
            for _ in sink:
                seen[0] += 1
            time.sleep(0.001)

    source = infeed(dataset)
    run = ipu.compile(lambda: repeat(200, lambda x: sink.enqueue(x), [], source), engine=engine)
    thread, _ = in_a_thread(consume)
    run()
    while seen[0] < 200:
        time.sleep(0.001)
    done.set()
    thread.join(30)


def test_several_threads_share_the_results() -> None:
    source, sink = infeed(incr(10**6, ())), outfeed()
    run = ipu.compile(lambda: repeat(2000, lambda x: sink.enqueue(x), [], source))
    run.lower()
    got: list[list[int]] = [[], [], []]
    done = threading.Event()

    def consume(own: list[int]) -> None:
        while not done.is_set():
            own.extend(int(x) for x in sink)
            time.sleep(0.0005)

    threads = [threading.Thread(target=consume, args=(own,), daemon=True) for own in got]
    for thread in threads:
        thread.start()
    run()
    deadline = time.monotonic() + 30
    while sum(map(len, got)) < 2000 and time.monotonic() < deadline:
        time.sleep(0.001)
    done.set()
    for thread in threads:
        thread.join(30)
    assert sorted(itertools.chain(*got)) == list(range(2000))
    assert all(own == sorted(own) for own in got)


def test_iterating_never_raises_and_ends() -> None:
    sink = outfeed()
    assert list(sink) == []
    run = ipu.compile(lambda n: repeat(n, lambda v: sink.enqueue({"v": v}) or v + 1, [0]))
    run.lower(np.int32(1))
    assert list(sink) == []
    run(np.int32(3))
    elements = list(sink)
    assert [int(e["v"]) for e in elements] == [0, 1, 2]
    assert list(sink) == []
    run(np.int32(2))
    assert int(next(iter(sink))["v"]) == 0
    np.testing.assert_array_equal(sink.dequeue()["v"], [1])


def test_sums_over_an_outfeed() -> None:
    sink = outfeed()
    ipu.compile(lambda: repeat(4, lambda v: sink.enqueue(v) or v + 1, [1.0]))()
    assert sum(sink) == 10


def test_iterating_keeps_replicas_together() -> None:
    configure(2)
    source, sink = infeed(incr(100, (3,))), outfeed()
    ipu.compile(lambda: repeat(4, lambda x: sink.enqueue(x), [], source))()
    assert [x.shape for x in sink] == [(2, 3)] * 4


def test_an_exception_in_a_consumer_is_its_own() -> None:
    source, sink = infeed(incr(10**6, ())), outfeed()
    run = ipu.compile(lambda: repeat(500, lambda x: sink.enqueue(x), [], source))
    run.lower()

    def consume() -> str:
        while True:
            for x in sink:
                if int(x) == 100:
                    return "gave up"
            time.sleep(0.001)

    thread, results = in_a_thread(consume)
    run()
    thread.join(30)
    assert results == ["gave up"]
    np.testing.assert_array_equal(sink.dequeue(), np.arange(101, 500))
    with pytest.raises(ZeroDivisionError):
        run_and_fail(run, sink)
    run()
    assert len(sink.dequeue()) > 0


def run_and_fail(run: Any, sink: Any) -> None:
    run()
    for x in sink:
        _ = 1 // int(x * 0)


def test_waiting_for_completion() -> None:
    sink, started = outfeed(), threading.Event()

    def dataset() -> Iterator[Any]:
        for k in range(30):
            if k == 3:
                started.set()
            time.sleep(0.005)
            yield f32(k)

    source = infeed(dataset)
    run = ipu.compile(lambda: repeat(30, lambda x: sink.enqueue(x), [], source))
    run.lower()
    thread, _ = in_a_thread(run)
    assert started.wait(30)
    assert len(sink.dequeue(wait_for_completion=True)) == 30
    thread.join(30)


def test_two_programs_in_two_threads() -> None:
    def one(k: int) -> Any:
        source, sink = infeed(incr(10**6, ())), outfeed()

        def body(v: jax.Array, x: jax.Array) -> jax.Array:
            sink.enqueue(x + k)
            return v + x

        run = ipu.compile(lambda: repeat(700, body, [0.0], source))
        return lambda: (float(run()), sink.dequeue())

    threads = [in_a_thread(one(k)) for k in range(3)]
    for k, (thread, results) in enumerate(threads):
        thread.join(60)
        ((total, sent),) = results
        assert total == sum(range(700))
        np.testing.assert_array_equal(sent, np.arange(700) + k)


@pytest.mark.parametrize("where", ["in the data set", "while waiting for it"])
def test_an_interrupted_loop_can_be_run_again(where: str) -> None:
    """Ctrl-C while a loop runs: the queues are free again, and nothing that was read is lost."""
    interrupt, sent = threading.Event(), outfeed()

    def dataset() -> Iterator[Any]:
        for k in itertools.count():
            if k == 5 and not interrupt.is_set():
                interrupt.set()
                if where == "in the data set":
                    raise KeyboardInterrupt
                _thread.interrupt_main()
                time.sleep(0.2)
            yield f32(k)

    source = infeed(dataset)

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        sent.enqueue(x)
        return v + x

    run = ipu.compile(lambda: repeat(50, body, [0.0], source))
    run.lower()
    with pytest.raises(KeyboardInterrupt):
        run()
    assert not sent.running
    assert not source.running
    assert len(sent.dequeue()) <= 6
    sent.deleter()
    source.deleter()
    other = infeed(incr(10, ()))
    assert ipu.compile(lambda: repeat(10, lambda v, x: v + x, [0.0], other))() == 45


# --- life times -----------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_queues_that_nobody_holds_are_freed() -> None:
    with pytest.warns(DeprecationWarning, match="feed_name"):
        source = infeed(incr(3), feed_name="mine")
    del source
    gc.collect()
    with pytest.warns(DeprecationWarning, match="feed_name"):
        infeed(incr(3), feed_name="mine")


def test_no_threads_are_left() -> None:
    before = set(threading.enumerate())
    source = infeed(incr(10, ()))
    for _ in range(5):
        copied(source, 20)
    left = [t for t in threading.enumerate() if t not in before and "infeed" in t.name]
    assert len(left) <= 1, left


def test_enqueues_outside_of_any_loop() -> None:
    sink = outfeed()
    run = ipu.compile(lambda x: sink.enqueue((x, {"y": x * 2})))
    for k in range(3):
        run(f32(k))
    x, rest = sink.dequeue()
    np.testing.assert_array_equal(x, [0, 1, 2])
    np.testing.assert_array_equal(rest["y"], [0, 2, 4])


def test_other_arguments_of_queues() -> None:
    with pytest.warns(DeprecationWarning, match="follows from the program"):
        infeed(incr(3), replication_factor=2)
    with pytest.warns(DeprecationWarning, match="prefetch_depth"):
        infeed(incr(3), data_to_prefetch=2)
    with pytest.warns(DeprecationWarning, match="follows from the program"):
        outfeed(replication_factor=2)
    with pytest.warns(DeprecationWarning, match="io_batch_size.*sent one by one"):
        outfeed(io_batch_size=2)
    for wrong in (0, 1.5, None):
        with pytest.raises(FeedError, match="io_batch_size"):
            outfeed(io_batch_size=wrong)
    with pytest.raises(FeedError, match="buffer_depth"):
        outfeed(buffer_depth=0)
    for queue in (outfeed, lambda **arguments: infeed(incr(3), **arguments)):
        with pytest.raises(FeedError, match="optimise_latency"):
            queue(optimise_latency=1)
    for ordinal in (-1, True, 1.5, "0"):
        with pytest.raises(FeedError, match="device_ordinal"):
            infeed(incr(3), device_ordinal=ordinal)
    with pytest.raises(FeedError, match="obsolete"):
        infeed(incr(3)).get_next()


def test_iterating_a_last_outfeed_leaves_its_element() -> None:
    sink = outfeed(LAST)
    ipu.compile(lambda: repeat(3, lambda v: (sink.enqueue(v), v + 1)[1], [0]))()
    assert list(sink) == [2]
    assert list(sink) == []
    assert sink.dequeue() == 2


def test_a_run_that_cannot_begin_leaves_no_queue_running() -> None:
    source, first, second = infeed([f32(1)] * 4), outfeed(), outfeed()

    def body(x: Any) -> None:
        first.enqueue(x)
        second.enqueue(x)

    run = ipu.compile(lambda: repeat(2, body, [], source))
    second.deleter()
    with pytest.raises(FeedError, match="deleter"):
        run()
    assert (source.running, first.running) == (0, 0)
    assert list(first) == []


def test_while_loop_at_the_end_of_its_data_set() -> None:
    source = infeed([f32(i) for i in range(4)])
    run = ipu.compile(
        lambda v, w: ipu.loops.while_loop(
            lambda v, w: v < 100, lambda v, w, x: (v + x, w), [v, w], source
        )
    )
    with pytest.raises(OutOfRangeError, match="ended after 4") as caught:
        run(f32(0), f32(7))
    assert [float(x) for x in caught.value.carried] == [6.0, 7.0]


def test_keys_come_back_as_keys() -> None:
    sink, key = outfeed(), jax.random.key(0, impl="rbg")
    ipu.compile(lambda: sink.enqueue({"key": key, "number": 1}))()
    element = next(iter(sink))
    assert bool(element["key"] == key)
    ipu.compile(lambda: sink.enqueue({"key": key, "number": 1}))()
    assert sink.dequeue()["key"].shape == (1,)


def test_elements_without_leaves_are_counted() -> None:
    sink = outfeed()
    ipu.compile(lambda: repeat(5, lambda v: (sink.enqueue(()), v)[1], [0]))()
    assert list(sink) == [()] * 5


def test_dequeue_before_a_replicated_run_has_the_axis_of_replicas() -> None:
    configure(2)
    sink = outfeed()
    run = ipu.compile(lambda x: sink.enqueue(x))
    run.lower(jnp.ones(3))
    assert sink.dequeue().shape == (0, 2, 3)
    run(jnp.ones(3))
    assert sink.dequeue().shape == (1, 2, 3)


@ENGINES
def test_a_body_that_sends_what_another_ipu_made(engine: str) -> None:
    configure(2)
    sink = outfeed()

    def program(x: Any) -> Any:
        with ipu.scopes.ipu_shard(1):
            y = x * 2

        def body(x: Any) -> Any:
            with ipu.scopes.ipu_shard(0):
                sink.enqueue(y)
                return x + 1

        return repeat(3, body, [x])

    assert ipu.compile(program, engine=engine)(f32(5)) == 8
    assert sink.dequeue().tolist() == [10, 10, 10]
