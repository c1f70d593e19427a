"""Conformance facts about outfeeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import ipujax as ipu
from ipujax.cross_replica_ops import cross_replica_sum
from ipujax.errors import FeedError, UnusedOutfeedError
from ipujax.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipujax.loops import repeat
from ipujax.scopes import ipu_shard
from tests.ipujax.feeding import LAST, configure, full, incr, infeed, outfeed, pairs

ENGINES = pytest.mark.parametrize("engine", ["fused", "replay"])
f32 = np.float32


def counting_into(sink: IPUOutfeedQueue, n: int) -> Callable[[Any], Any]:
    """n times: send v, then count it up."""

    def body(v: jax.Array) -> jax.Array:
        sink.enqueue(v)
        return v + 1

    return lambda v: repeat(n, body, [v])


@pytest.mark.fact("outfeed.all_basic")
@ENGINES
def test_every_iteration_is_kept(engine: str) -> None:
    sink = outfeed()
    result = ipu.compile(counting_into(sink, 20), engine=engine)(full(1))
    np.testing.assert_array_equal(result, full(21))
    sent = sink.dequeue()
    np.testing.assert_array_equal(sent, np.stack([full(i + 1) for i in range(20)]))


@pytest.mark.fact("outfeed.all_with_infeed")
@ENGINES
def test_sums_of_an_infeed(engine: str) -> None:
    source, sink = infeed(incr(10)), outfeed()

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        v = v + x
        sink.enqueue(v)
        return v

    result = ipu.compile(lambda v: repeat(20, body, [v], source), engine=engine)(full(1))
    sent = sink.dequeue()
    assert sent.shape == (20, 4, 4)
    np.testing.assert_array_equal(sent[5], full(16))
    np.testing.assert_array_equal(sent[-1], full(91))
    np.testing.assert_array_equal(result, full(91))


def sums_of_pairs(form: Any) -> Any:
    """Five iterations over pairs, the sum and the elements sent in some form."""
    source = infeed(pairs(3))

    def body(v: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        v = v + x + y
        form(v, x, y)
        return v

    return ipu.compile(lambda v: repeat(5, body, [v], source))(full(0))


@pytest.mark.fact("outfeed.tuple_last")
def test_the_last_tuple() -> None:
    sink = outfeed(LAST)
    result = sums_of_pairs(lambda v, x, y: sink.enqueue((v, x, y)))
    np.testing.assert_array_equal(result, full(31))
    sent = sink.dequeue()
    assert isinstance(sent, tuple)
    for array, wanted in zip(sent, (31, 1, 5.5), strict=True):
        np.testing.assert_array_equal(array, full(wanted))


@pytest.mark.fact("outfeed.dict_all")
def test_dicts() -> None:
    sink = outfeed()
    sums_of_pairs(lambda v, x, y: sink.enqueue({"v": v, "image1": x, "image2": y}))
    wanted = {
        "v": [5, 11.5, 19.5, 24.5, 31],
        "image1": [0, 1, 2, 0, 1],
        "image2": [5, 5.5, 6, 5, 5.5],
    }
    sent = sink.dequeue()
    assert set(sent) == set(wanted)
    for name, values in wanted.items():
        np.testing.assert_array_equal(sent[name], np.stack([full(x) for x in values]))


@pytest.mark.fact("outfeed.last_scalar_type")
def test_the_last_scalar_is_a_numpy_scalar() -> None:
    source, sink = infeed(incr(10, ())), outfeed(LAST)

    def body(loss: jax.Array, x: jax.Array) -> jax.Array:
        loss = loss + x
        sink.enqueue(loss)
        return loss

    final = ipu.compile(lambda: repeat(20, body, [0.0], source))()
    last = sink.dequeue()
    assert type(last) is np.float32
    assert last == float(final) == 90


@pytest.mark.fact("outfeed.two_nested")
@ENGINES
def test_two_outfeeds_in_nested_loops(engine: str) -> None:
    first, second = outfeed(), outfeed()
    inner = counting_into(second, 10)

    def outer(v: jax.Array) -> jax.Array:
        first.enqueue(v)
        return inner(v)

    ipu.compile(lambda v: repeat(10, outer, [v]), engine=engine)(f32(0))
    np.testing.assert_array_equal(first.dequeue(), np.arange(0, 100, 10))
    np.testing.assert_array_equal(second.dequeue(), np.arange(100))


@pytest.mark.fact("outfeed.two_programs_delayed")
def test_two_programs_run_before_their_outfeeds_are_read() -> None:
    q1, q2 = outfeed(), outfeed()
    first = ipu.compile(counting_into(q1, 5))(full(1))
    second = ipu.compile(counting_into(q2, 7))(full(4, (5, 5)))
    np.testing.assert_array_equal(first, full(6))
    np.testing.assert_array_equal(second, full(11, (5, 5)))
    np.testing.assert_array_equal(q1.dequeue(), np.stack([full(i + 1) for i in range(5)]))
    np.testing.assert_array_equal(q2.dequeue(), np.stack([full(i + 4, (5, 5)) for i in range(7)]))


@pytest.mark.fact("outfeed.enqueued_per_graph")
def test_enqueued_is_told_for_each_traced_function() -> None:
    sink = outfeed()
    seen: list[bool] = []

    def program(x: jax.Array) -> jax.Array:
        seen.append(sink.enqueued)
        sink.enqueue(x)
        seen.append(sink.enqueued)
        return x

    ipu.compile(program)(f32(1))
    ipu.compile(lambda x: program(x))(f32(2))
    assert seen == [False, True, False, True]
    np.testing.assert_array_equal(sink.dequeue(), [1, 2])


@pytest.mark.fact("outfeed.last_before_run")
def test_the_last_value_of_an_unused_outfeed() -> None:
    sink = outfeed(LAST)
    run = ipu.compile(counting_into(sink, 3))
    run.lower(f32(0))
    with pytest.raises(UnusedOutfeedError, match="the last value from an unused outfeed"):
        sink.dequeue()
    run(f32(0))
    assert sink.dequeue() == 2


@pytest.mark.fact("outfeed.non_string_keys")
def test_keys_that_are_no_strings_and_values_that_are_no_arrays() -> None:
    sink = outfeed()

    def body(w: jax.Array) -> jax.Array:
        sink.enqueue({101: 1, 2020: w})
        return w

    ipu.compile(lambda w: repeat(5, body, [w]))(f32([2.0]))
    sent = sink.dequeue()
    assert set(sent) == {101, 2020}
    np.testing.assert_array_equal(sent[101], [1] * 5)
    np.testing.assert_array_equal(sent[2020], [[2.0]] * 5)


@pytest.mark.fact("outfeed.bad_mode")
@pytest.mark.parametrize("mode", ["all", 0, True, object()])
def test_modes_are_members_of_the_enumeration(mode: Any) -> None:
    with pytest.raises(ValueError, match=r"outfeed_mode is .* must be an IPUOutfeedMode") as caught:
        IPUOutfeedQueue(outfeed_mode=mode)
    assert isinstance(caught.value, FeedError)


@pytest.mark.fact("outfeed.mode_values")
def test_values_of_the_modes() -> None:
    assert IPUOutfeedMode.ALL.value == "all"
    assert IPUOutfeedMode.LAST.value == "get_last"
    assert len(IPUOutfeedMode) == 2
    assert IPUOutfeedQueue().outfeed_mode is IPUOutfeedMode.ALL


@pytest.mark.fact("outfeed.ordinals")
def test_outfeeds_of_two_devices() -> None:
    configure(1, 1)
    queues = [outfeed(device_ordinal=0), outfeed(device_ordinal=1)]
    for ordinal, queue in enumerate(queues):
        run = ipu.compile(lambda x, q=queue: q.enqueue(x), device=f"/device:IPU:{ordinal}")
        run(np.ones((1, 3 + ordinal), np.float32))
    assert [queue.dequeue().shape for queue in queues] == [(1, 1, 3), (1, 1, 4)]


@pytest.mark.fact("outfeed.tuple_two_runs")
@pytest.mark.parametrize("mode", list(IPUOutfeedMode))
def test_two_runs_of_a_program_without_a_loop(mode: IPUOutfeedMode) -> None:
    sink = outfeed(mode)

    @ipu.compile
    def run(a: Any, b: Any, c: Any, d: Any) -> None:
        sink.enqueue((a + b, c - d))

    run(full(1, (10, 10)), full(1, (10, 10)), full(1), full(1))
    run(full(2, (10, 10)), full(1, (10, 10)), full(2), full(1))
    sums, differences = sink.dequeue()
    if mode is LAST:
        np.testing.assert_array_equal(sums, full(3, (10, 10)))
        np.testing.assert_array_equal(differences, full(1))
        return
    np.testing.assert_array_equal(sums, [full(2, (10, 10)), full(3, (10, 10))])
    np.testing.assert_array_equal(differences, [full(0), full(1)])


@pytest.mark.fact("outfeed.replicated_tuple")
@ENGINES
def test_tuples_of_replicas(engine: str) -> None:
    configure(2)
    source, sink = infeed(incr(3, (2,))), outfeed()

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        out = cross_replica_sum(v + x)
        sink.enqueue((v, out))
        return out

    run = ipu.compile(lambda v: repeat(5, body, [v], source), engine=engine)
    np.testing.assert_array_equal(run(full(0, (2,))), [48, 48])
    before, after = sink.dequeue()
    values = np.array([0, 1, 4, 11, 23, 48], np.float32)
    wanted = np.broadcast_to(values[:, None, None], (6, 2, 2))
    np.testing.assert_array_equal(before, wanted[:5])
    np.testing.assert_array_equal(after, wanted[1:])


@pytest.mark.fact("outfeed.mixed_replication_shape")
def test_each_program_has_its_own_factor() -> None:
    configure(4)
    sharded, unsharded = outfeed(), outfeed()

    def program(v: jax.Array) -> jax.Array:
        with ipu_shard(0):
            v = v + 1
        with ipu_shard(1):
            return counting_into(sharded, 3)(v)

    ipu.compile(program)(full(0))
    ipu.compile(counting_into(unsharded, 3))(full(0))
    assert sharded.dequeue().shape == (3, 2, 4, 4)
    assert unsharded.dequeue().shape == (3, 4, 4, 4)


@pytest.mark.fact("outfeed.conflict_redefinition")
def test_what_is_in_an_outfeed_has_one_shape_and_one_factor() -> None:
    sink = outfeed()
    ipu.compile(counting_into(sink, 2))(full(0))
    with pytest.raises(FeedError, match=rf"`{sink.name}`.*\[4, 4\].*\[2\].*dequeue"):
        ipu.compile(counting_into(sink, 2))(full(0, (2,)))
    configure(2)
    with pytest.raises(FeedError, match=rf"(?s)`{sink.name}`.*dequeue"):
        ipu.compile(counting_into(sink, 2))(full(0))
    assert sink.dequeue().shape == (2, 4, 4)  # what was there stays
    ipu.compile(counting_into(sink, 2))(full(0))
    assert sink.dequeue().shape == (2, 2, 4, 4)


@pytest.mark.fact("outfeed.synthetic_last")
@pytest.mark.parametrize("flags", ["--use_synthetic_data", "--synthetic_data_categories=outfeed"])
def test_synthetic_data_has_no_last_value(flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", flags)
    sink = outfeed(LAST)
    ipu.compile(counting_into(sink, 2))(full(0))
    with pytest.raises(UnusedOutfeedError, match="synthetic"):
        sink.dequeue()
