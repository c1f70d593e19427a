"""Replicas on real devices: spread over four of them, alone and with shards."""

from __future__ import annotations

import pytest

from tests.conftest import RunWithDevices
from tests.multi_device.test_shards import START

HELPERS = '''
index = ipu.replication_ops.replication_index
total = ipu.cross_replica_ops.cross_replica_sum

def spread(run, *args):
    """Whether the program's replicas have devices of their own."""
    return run.lower(*args).placement.spread
'''


def test_collectives_over_four_devices(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        4,
        START
        + HELPERS
        + """
from lowering.ops import collective_primitives as collectives

use_ipus(4)

def fn(x):
    own = x + index().astype(x.dtype)
    return {
        "own": own,
        "sum": total(own),
        "all": collectives.all_gather(own, 4),
        "pairs": collectives.all_gather(own, 2),
        "pair_sums": collectives.cross_replica_sum(own, 2),
        "grad": jax.grad(lambda y: total(y * y).sum())(own),
        "count": collectives.replica_count(),
    }

x = jnp.arange(3.0)
own = np.stack([np.arange(3.0, dtype=np.float32) + r for r in range(4)])
wanted = {
    "own": own[0], "sum": own.sum(0), "all": own, "pairs": own[:2], "pair_sums": own[:2].sum(0),
    "grad": 4 * 2 * own[0], "count": np.int32(4),
}
for engine in ("auto", "fused", "replay"):
    run = ipu.compile(fn, engine=engine)
    assert spread(run, x) == (engine != "auto")
    same(run(x), jax.tree.map(jnp.asarray, wanted))

def in_loop(x):
    def step(c, _):
        return total(c) / 4 + index(), c
    return lax.scan(step, x, None, length=3)

run = ipu.compile(in_loop, engine="fused")
assert spread(run, x)
c, kept = x, []
values = [np.asarray(x)] * 4
for _ in range(3):
    kept.append(values[0])
    mean = sum(values) / 4
    values = [mean + r for r in range(4)]
same(run(x), (jnp.asarray(values[0]), jnp.stack(kept)), exact=False)
""",
    )


@pytest.mark.exhaustive
def test_two_shards_of_two_replicas(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        4,
        START
        + HELPERS
        + """
use_ipus(4)

def fn(x):
    with ipu_shard(0):
        y = x + index().astype(x.dtype)
    with ipu_shard(1):
        return total(y), total(y * y), y

x = jnp.ones(3)
wanted = jnp.full(3, 3.0, jnp.float32), jnp.full(3, 5.0, jnp.float32), jnp.ones(3)
for engine in ("auto", "fused", "replay"):
    run = ipu.compile(fn, engine=engine)
    placement = run.lower(x).placement
    is_spread = engine != "auto"
    assert (placement.ipus, placement.replicas, placement.spread) == (2, 2, is_spread)
    assert not is_spread or len(set(placement.devices)) == 4
    same(run(x), wanted)
""",
    )


@pytest.mark.exhaustive
def test_queues_of_replicas_on_devices(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        4,
        START
        + HELPERS
        + """
elements = [np.full(2, i, np.float32) for i in range(12)]

for count, shards in ((4, 1), (4, 2), (2, 1)):
    replicas = count // shards
    for engine in ("auto", "fused", "replay"):
        use_ipus(count)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(elements)
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def body(c, x):
            with ipu_shard(0):
                y = x + c
            with ipu_shard(shards - 1):
                outfeed.enqueue((x, total(y)))
            return c + 1

        def fn(c):
            return ipu.loops.repeat(3, body, [c], infeed)

        run = ipu.compile(fn, engine=engine)
        assert float(run(jnp.float32(0))) == 3.0
        xs, sums = outfeed.dequeue()
        read = np.stack(elements[: 3 * replicas]).reshape(3, replicas, 2)
        np.testing.assert_array_equal(xs, read)
        for i in range(3):
            wanted = np.tile(read[i].sum(0) + replicas * i, (replicas, 1))
            np.testing.assert_array_equal(sums[i], wanted)
""",
    )


@pytest.mark.exhaustive
def test_too_few_devices_share_one(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        2,
        START.replace("== 4", "== 2")
        + HELPERS
        + """
use_ipus(8)

def fn(x):
    with ipu_shard(0):
        y = x + index().astype(x.dtype)
    with ipu_shard(1):
        return total(y)

x = jnp.ones(3)
for engine in ("auto", "fused", "replay"):
    run = ipu.compile(fn, engine=engine)
    assert not spread(run, x)
    same(run(x), jnp.full(3, 10.0, jnp.float32))
""",
    )


@pytest.mark.exhaustive
def test_replicas_meet_at_collectives_under_conditions(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        4,
        START
        + HELPERS
        + """
use_ipus(4)
numbers = np.arange(4, dtype=np.float32)

def fn(x, limit):
    own = x + index().astype(x.dtype)
    some = lax.cond(own > limit, lambda: total(own), lambda: -own)
    pairs = ipu.cross_replica_ops.cross_replica_sum
    nested = lax.cond(
        own > 1, lambda: lax.cond(own > 2, lambda: pairs(own, 2), lambda: total(own)), lambda: own
    )
    start = jnp.int32(0), own
    rounds, reached = lax.while_loop(
        lambda c: c[1] < 40, lambda c: (c[0] + 1, c[1] + total(own) + own), start
    )
    agreed, _ = lax.while_loop(lambda c: total(c[1]) < 40, lambda c: (c[0] + 1, c[1] + 1), start)
    return [ipu.all_to_all_op.all_gather(y, 4) for y in (some, nested, rounds, reached, agreed)]

def wanted(x, limit):
    own = x + numbers
    rounds = np.array([sum(o + n * (own.sum() + o) < 40 for n in range(99)) for o in own])
    return [
        np.where(own > limit, own.sum(), -own),
        np.where(own > 1, np.where(own > 2, own.reshape(2, 2).sum(1).repeat(2), own.sum()), own),
        rounds.astype(np.int32),
        own + rounds * (own.sum() + own),
        np.full(4, sum((own + n).sum() < 40 for n in range(99)), np.int32),
    ]

for engine in ("auto", "fused", "replay"):
    run = ipu.compile(fn, engine=engine)
    for limit in (2.0, -1.0, 9.0):
        args = jnp.float32(1), jnp.float32(limit)
        assert spread(run, *args) == (engine != "auto")
        same(run(*args), jax.tree.map(jnp.asarray, wanted(np.float32(1), limit)))
""",
    )


@pytest.mark.exhaustive
def test_effects_of_replicas_on_devices_are_the_first_replicas(
    run_with_devices: RunWithDevices,
) -> None:
    run_with_devices(
        4,
        START
        + HELPERS
        + """
use_ipus(4)
seen = []

def note(v):
    seen.append(float(v))

def answer(v):
    seen.append(float(v))
    return np.float32(100)

def fn(x, ordered):
    own = x + index().astype(x.dtype)
    for scale in (1, 10):
        jax.experimental.io_callback(note, None, own * scale, ordered=ordered)
    lax.cond(own > 2, lambda: jax.debug.callback(note, own, ordered=ordered), lambda: None)
    return total(own + jax.experimental.io_callback(answer, jax.typeof(x), -own, ordered=ordered))

for ordered in (False, True):
    for engine in ("auto", "fused", "replay"):
        run = ipu.compile(fn, engine=engine, static_argnums=1)
        assert spread(run, jnp.float32(1), ordered) == (engine != "auto")
        for _ in range(2):
            seen.clear()
            assert float(run(jnp.float32(1), ordered)) == 410.0
            jax.effects_barrier()
            assert sorted(seen) == [-1, 1, 10], (ordered, engine, seen)
            assert not ordered or seen == [1, 10, -1], (engine, seen)
""",
    )


@pytest.mark.exhaustive
def test_callbacks_of_replicas_on_devices(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        4,
        START
        + HELPERS
        + """
use_ipus(4)

def fn(x):
    own = x + index().astype(x.dtype)
    host = jax.pure_callback(
        lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), own
    )
    return total(host)

run = ipu.compile(fn, engine="fused")
assert spread(run, jnp.ones(2))
same(run(jnp.ones(2)), jnp.full(2, 20.0, jnp.float32))
""",
    )
