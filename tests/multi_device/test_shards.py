"""Shards on real devices: where they run, that they overlap, and that numbers stay the same.

Each test is one process with four CPU devices, which checks several things to save start-up time.
"""

from __future__ import annotations

import pytest

from tests.conftest import RunWithDevices

START = """
import time
import jax, jax.numpy as jnp, numpy as np
from jax import lax
import ipujax as ipu
from ipujax.scopes import ipu_shard
from tests.numbers import same, scattered, use_ipus

DEVICES = jax.devices()
assert len(DEVICES) == 4

def where(array):
    return sorted(device.id for device in array.devices())
"""


@pytest.mark.exhaustive
def test_kernels_run_on_the_devices_of_their_shards(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        4,
        START
        + """
use_ipus(4)
seen = {}

def fn(x):
    with ipu_shard(0):
        a = jnp.sin(x)
    with ipu_shard(1):
        b = jnp.cos(a)
    with ipu_shard(2):
        c = b * 2
    with ipu_shard(3):
        return c + a

from ipujax.engine import replay

original = replay.Machine.build_execute

def watched(self, node, donated):
    step = original(self, node, donated)

    def run(values, session):
        step(values, session)
        for value in node.writes:
            seen.setdefault(node.ipu, set()).update(where(values[value, node.ipu]))

    return run

replay.Machine.build_execute = watched
x = jnp.arange(4.0)
result = ipu.compile(fn, engine="replay")(x)
same(result, jax.jit(fn)(x), exact=False)
assert len(seen) == 4 and all(len(devices) == 1 for devices in seen.values()), seen
assert len(set.union(*seen.values())) == 4, seen
assert where(result) == [0], where(result)
""",
    )


@pytest.mark.exhaustive
def test_every_engine_gives_the_same_numbers(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        4,
        START
        + """
use_ipus(2)

def layers(params, x):
    for number, w in enumerate(params):
        with ipu_shard(number % 2):
            x = jnp.tanh(x @ w)
    return x.sum()

def looped(params, x):
    def step(c, row):
        with ipu_shard(0):
            h = jnp.tanh(c * row)
        with ipu_shard(1):
            return h + c, h.sum()
    final, sums = lax.scan(step, jnp.ones(x.shape[1]), x)
    return lax.cond(sums.sum() > 0, lambda: final, lambda: -final).sum() + params[0].sum()

params = [jnp.eye(4) * (i + 1) / 3 for i in range(4)]
x = jnp.linspace(-1, 1, 12).reshape(3, 4)
for fn in (layers, looped):
    fn = jax.value_and_grad(fn)
    wanted = jax.jit(fn)(params, x)
    results = [ipu.compile(fn, engine=e)(params, x) for e in ("auto", "fused", "replay")]
    for result in results:
        same(result, wanted, exact=False)
same(ipu.compile(scattered(fn), engine="replay")(params, x), wanted, exact=False)

# Heavy, independent shards are worth separate kernels; a single small one is not.
def heavy(a, b):
    with ipu_shard(0):
        a = a @ a @ a
    with ipu_shard(1):
        b = b @ b @ b
    return a.sum(), b.sum()

big = jnp.ones((1200, 1200)) / 1200
assert ipu.compile(heavy).lower(big, big).compile().engine == "replay"
small = jnp.ones((4, 4))
assert ipu.compile(heavy).lower(small, small).compile().engine == "fused"
""",
    )


@pytest.mark.exhaustive
def test_shards_overlap_where_data_allows(run_with_devices: RunWithDevices) -> None:
    """Kernels are started without waiting for those on other devices.

    Python callbacks could tell times, but JAX runs CPU kernels that hold one to their end before
    it gives control back. So the kernels compute, and their results say whether they are ready.
    """
    run_with_devices(
        4,
        START
        + """
use_ipus(4)

def work(x):
    return lax.fori_loop(0, 300, lambda _, c: jnp.sin(c) * 1.01, x)

def fn(xs):
    results = []
    for number, x in enumerate(xs):
        with ipu_shard(number):
            results.append(work(x))
    with ipu_shard(0):
        return results, results[1] + results[2]

xs = [jnp.full((300, 300), i + 0.5) for i in range(4)]
run = ipu.compile(fn, engine="replay")
wanted = jax.block_until_ready(run(xs))
for _ in range(20):  # a machine that is busy may let this thread wait
    start = time.perf_counter()
    results, total = run(xs)
    returned = time.perf_counter() - start
    in_flight = sum(not array.is_ready() for array in (*results, total))
    jax.block_until_ready((results, total))
    whole = time.perf_counter() - start
    if in_flight == 5 and returned < whole / 4:
        break
else:
    raise AssertionError((in_flight, returned, whole))
same((results, total), wanted)
same(wanted, jax.jit(fn)(xs), exact=False)
""",
    )


@pytest.mark.exhaustive
def test_arguments_on_other_devices(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        4,
        START
        + """
use_ipus(2)

def fn(x, y):
    with ipu_shard(0):
        a = x * 2
    with ipu_shard(1):
        return a + y, y

x, y = jnp.arange(3.0), jnp.ones(3)
wanted = jax.jit(fn)(x, y)
for engine in ("auto", "fused", "replay"):
    run = ipu.compile(fn, engine=engine)
    for dx, dy in ((0, 0), (3, 3), (2, 2), (3, 1), (1, 0)):
        result = run(jax.device_put(x, DEVICES[dx]), jax.device_put(y, DEVICES[dy]))
        same(result, wanted, exact=False)
    donating = ipu.compile(fn, engine=engine, donate_argnums=(0, 1))
    for device in (DEVICES[3], DEVICES[0]):
        given = jax.device_put(x.copy(), device), jax.device_put(y.copy(), device)
        same(donating(*given), wanted, exact=False)
        assert all(array.is_deleted() for array in given), engine
""",
    )


@pytest.mark.exhaustive
def test_host_operations_between_devices(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        4,
        START
        + """
use_ipus(2)

def fn(x):
    with ipu_shard(0):
        a = x * x
    with ipu.scopes.outside_compilation_scope("sum"):
        b = jnp.cumsum(a)
    with ipu_shard(1):
        c = b + a
    with ipu.scopes.outside_compilation_scope("again"):
        d = c * 2
    with ipu_shard(0):
        return d + x

x = jnp.arange(4.0)
for engine in ("auto", "fused", "replay"):
    run = ipu.compile(fn, engine=engine)
    assert "host-call again" in run.lower(x).as_text()
    same(run(x), jax.jit(fn)(x), exact=False)
""",
    )


@pytest.mark.exhaustive
def test_queues_in_loops_over_two_devices(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        4,
        START
        + """
def program(elements, n):
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(elements)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(total, x):
        with ipu_shard(0):
            h = jnp.tanh(x) + total
        with ipu_shard(1):
            y = h * 2
            outfeed.enqueue({"y": y, "h": h})
        return y * 0.5

    def fn(total):
        return ipu.loops.repeat(n, body, [total], infeed)

    return fn, outfeed

elements = [np.full(2, i, np.float32) for i in range(9)]

def by_hand():
    total, ys, hs = np.zeros(2, np.float32), [], []
    for x in elements:
        h = jnp.tanh(x) + total
        ys.append(h * 2)
        hs.append(h)
        total = h
    return total, np.stack(ys), np.stack(hs)

total, ys, hs = by_hand()
for engine in ("auto", "fused", "replay"):
    use_ipus(2)
    fn, outfeed = program(elements, 9)
    result = ipu.compile(fn, engine=engine)(jnp.zeros(2))
    sent = outfeed.dequeue()
    np.testing.assert_allclose(result, total, rtol=1e-6)
    np.testing.assert_allclose(sent["y"], ys, rtol=1e-6)
    np.testing.assert_allclose(sent["h"], hs, rtol=1e-6)

    use_ipus(2)
    fn, outfeed = program(elements, 20)
    try:
        ipu.compile(fn, engine=engine)(jnp.zeros(2))
    except ipu.errors.OutOfRangeError as error:
        np.testing.assert_allclose(error.carried[0], total, rtol=1e-6)
        assert len(outfeed.dequeue()["y"]) == 9
    else:
        raise AssertionError("the data set is shorter than the loop")
""",
    )


def test_two_ipus_use_two_devices(run_with_devices: RunWithDevices) -> None:
    """Shards land on devices in turn, whatever the ids of the IPUs that were attached."""
    printed = run_with_devices(
        2,
        """
        import jax, jax.numpy as jnp
        import ipujax as ipu
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 2
        config.configure_ipu_system()
        def f(x):
            with ipu.scopes.ipu_shard(0):
                y = x + 1
            with ipu.scopes.ipu_shard(1):
                return y * 2
        placement = ipu.compile(f).lower(jnp.ones(3)).placement
        print([d.id for d in placement.devices])
        g = ipu.compile(lambda x: ipu.cross_replica_ops.cross_replica_sum(x.sum()), engine="fused")
        print(g.lower(jnp.ones(3)).placement.spread, float(g(jnp.ones(3))))
        """,
    )
    assert printed.splitlines() == ["[0, 1]", "True 6.0"]
