"""Conformance facts about infeeds."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import FeedError
from ipujax.loops import repeat
from tests.ipujax.feeding import (
    configure,
    full,
    incr,
    incr_finite,
    infeed,
    outfeed,
    pairs,
)

ENGINES = pytest.mark.parametrize("engine", ["fused", "replay"])
f32 = np.float32


def add(v: jax.Array, *elements: jax.Array) -> jax.Array:
    return sum(elements, v)


@pytest.mark.fact("infeed.repeat_sum")
@ENGINES
def test_sum_of_an_endless_source(engine: str) -> None:
    source = infeed(incr(10))
    run = ipu.compile(lambda v: repeat(20, add, [v], source), engine=engine)
    np.testing.assert_array_equal(run(full(1)), full(91))


@pytest.mark.fact("infeed.finite_exact")
@ENGINES
def test_all_elements_of_a_finite_source(engine: str) -> None:
    source = infeed(incr_finite(10))
    run = ipu.compile(lambda v: repeat(10, add, [v], source), engine=engine)
    np.testing.assert_array_equal(run(full(1)), full(46))


@pytest.mark.fact("infeed.tuple_merge_flag")
@pytest.mark.parametrize("merge", [False, True])
def test_merging_copies_changes_no_number(merge: bool) -> None:
    config = ipu.config.IPUConfig()
    config.optimizations.merge_infeed_io_copies = merge
    config.configure_ipu_system()
    source = infeed(pairs(3))
    result = ipu.compile(lambda v: repeat(5, add, [v], source))(full(0))
    np.testing.assert_array_equal(result, full(31))


@pytest.mark.fact("infeed.dict_kwargs")
@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: (d,)], ids=["dict", "in a 1-tuple"])
def test_a_dict_becomes_keyword_arguments(wrap: Callable[[Any], Any]) -> None:
    source = infeed(lambda: (wrap({"a": x, "b": y}) for x, y in pairs(3)()))

    def body(v1: jax.Array, v2: jax.Array, b: jax.Array, a: jax.Array) -> Any:
        return v1 + a, v2 + b

    v1, v2 = ipu.compile(lambda v: repeat(5, body, [v, v], source))(full(0))
    np.testing.assert_array_equal(v1, full(4))
    np.testing.assert_array_equal(v2, full(27))


@pytest.mark.fact("infeed.multi_runs")
@ENGINES
def test_programs_that_share_an_infeed_read_on(engine: str) -> None:
    source = infeed(incr(10))

    def run(n: int) -> Any:
        return ipu.compile(lambda v: repeat(n, add, [v], source), engine=engine)(full(0))

    for n, wanted in ((0, 0), (2, 1), (2, 5), (2, 9)):
        np.testing.assert_array_equal(run(n), full(wanted))


@pytest.mark.fact("infeed.undefined_shape")
def test_batches_of_unequal_size() -> None:
    """Seven examples in batches of three, with the remainder: the last one has another shape."""
    data = np.arange(7, dtype=np.float32)
    source = infeed([data[:3], data[3:6], data[6:]])
    run = ipu.compile(lambda v: repeat(3, lambda v, x: v + x.sum(), [v], source))
    with pytest.raises(ValueError, match="drop_remainder") as caught:
        run(f32(0))
    assert isinstance(caught.value, FeedError)
    for words in (source.name, "element 2", "(1,)", "(3,)"):
        assert words in str(caught.value)


@pytest.mark.fact("infeed.init_once")
def test_the_initializer_can_be_had_once() -> None:
    source = infeed(incr(10))
    initializer = source.initializer
    with pytest.raises(ValueError, match="can only be accessed once"):
        _ = source.initializer
    initializer()
    assert ipu.compile(lambda v: repeat(3, add, [v], source))(full(0))[0, 0] == 3


@pytest.mark.fact("infeed.delete_before_init")
def test_the_deleter_needs_something_to_delete() -> None:
    source = infeed(incr(10))
    with pytest.raises(FeedError, match=f"infeed with id=`{source.name}` was not found"):
        source.deleter()
    assert ipu.compile(lambda v: repeat(3, add, [v], source))(full(0))[0, 0] == 3


@pytest.mark.fact("infeed.bool")
@ENGINES
def test_booleans(engine: str) -> None:
    left, right = np.array([[0, 0], [1, 1]], bool), np.array([[0, 1], [0, 1]], bool)
    source, sink = infeed(list(zip(left, right, strict=True))), outfeed()

    def body(x: jax.Array, y: jax.Array) -> None:
        sink.enqueue(x & y)

    ipu.compile(lambda: repeat(2, body, [], source), engine=engine)()
    result = sink.dequeue()
    assert result.dtype == np.bool_
    np.testing.assert_array_equal(result.ravel(), [False, False, False, True])


@pytest.mark.fact("infeed.nested_dict_positional")
def test_a_dict_beside_others_stays_one() -> None:
    source = infeed(itertools.repeat(({"x0": f32(1), "x1": f32(1)}, f32(1))))

    def body(total: jax.Array, x: dict[str, jax.Array], y: jax.Array) -> jax.Array:
        return total + x["x0"] + x["x1"] + y

    assert ipu.compile(lambda: repeat(2, body, [0.0], source))() == 6.0


@pytest.mark.fact("infeed.prefetch_bounds")
def test_bounds_of_the_prefetch_depth() -> None:
    for depth in (0, -1):
        with pytest.raises(ValueError, match="> 0"):
            infeed(incr(3), prefetch_depth=depth)
    with pytest.raises(ValueError, match="< 256"):
        infeed(incr(3), prefetch_depth=256)
    for depth in (None, 1, 255):
        source = infeed(incr(10), prefetch_depth=depth)
        run = ipu.compile(lambda v, source=source: repeat(20, add, [v], source))
        np.testing.assert_array_equal(run(full(1)), full(91))


@pytest.mark.fact("infeed.dequeued_prop")
def test_dequeued_and_the_number_of_elements() -> None:
    single, double = infeed(incr(3)), infeed(pairs(3))
    named = infeed(lambda: ({"a": x, "b": x, "c": x} for x in incr(3)()))
    mixed = infeed(lambda: ((x, {"b": x, "c": x}) for x in incr(3)()))
    assert [q.number_of_tuple_elements for q in (single, double, named, mixed)] == [1, 2, 3, 2]
    assert not single.dequeued
    run = ipu.compile(lambda v: repeat(2, add, [v], single))
    assert not single.dequeued
    run.lower(full(0))
    assert single.dequeued
    assert not double.dequeued


@pytest.mark.fact("infeed.dataset_exception")
@ENGINES
def test_the_data_sets_own_exception_arrives(engine: str) -> None:
    class OutOfDiskError(Exception):
        pass

    def dataset() -> Iterator[np.ndarray]:
        yield from incr_finite(3)
        raise OutOfDiskError("no more room")

    source = infeed(dataset)
    run = ipu.compile(lambda v: repeat(10, add, [v], source), engine=engine)
    with pytest.raises(OutOfDiskError, match="no more room") as caught:
        run(full(0))
    (note,) = [note for note in caught.value.__notes__ if source.name in note]
    assert "element 3" in note


@pytest.mark.fact("infeed.replica_distribution")
@ENGINES
def test_elements_are_dealt_to_replicas_in_turn(engine: str) -> None:
    configure(2)
    source, sink = infeed(list(np.float32([1, 2, 3, 4]))), outfeed()
    ipu.compile(lambda: repeat(2, lambda x: sink.enqueue(x), [], source), engine=engine)()
    np.testing.assert_array_equal(sink.dequeue(), [[1, 2], [3, 4]])


@pytest.mark.fact("infeed.delete_in_use")
@pytest.mark.parametrize("which", ["infeed", "outfeed"])
def test_a_queue_in_use_cannot_be_deleted(which: str) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def dataset() -> Iterator[np.ndarray]:
        for number, element in enumerate(incr(10)()):
            if number == 5:
                reached.set()
                assert go_on.wait(60)
            yield element

    source, sink = infeed(dataset), outfeed()

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        sink.enqueue(x)
        return v + x

    run = ipu.compile(lambda v: repeat(20, body, [v], source))
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(run(full(1))), daemon=True)
    thread.start()
    assert reached.wait(60)
    queue = {"infeed": source, "outfeed": sink}[which]
    while not sink.running:  # the first elements are read while the function is traced
        time.sleep(0.001)
    try:
        with pytest.raises(FeedError, match=f"`{queue.name}` cannot be deleted while"):
            queue.deleter()
    finally:
        go_on.set()
        thread.join(60)
    np.testing.assert_array_equal(results[0], full(91))
    queue.deleter()
