"""Refs, JAX's mutable arrays: made inside, taken as arguments, closed over; on both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ipujax as ipu
from tests.numbers import same, use_ipus

X = np.float32([1, -2, 3])

ENGINES = pytest.mark.parametrize("engine", ["fused", "replay"])


def shard(number: int) -> Any:
    return ipu.scopes.ipu_shard(number)


def straight(x: Any) -> Any:
    ref = jax.new_ref(jnp.zeros(3))
    with shard(0):
        ref[...] = x
        before = ref[1]
    with shard(1):
        ref[0] += 2.0
        ref[1] = before * 3
    with shard(0):
        whole = ref[...]
        jax.ref.addupdate(ref, (0,), 1.0)
    return jax.ref.swap(ref, (2,), 7.0), whole, jax.freeze(ref)


def in_loops(x: Any) -> Any:
    ref = jax.new_ref(x)
    rows = jax.new_ref(jnp.zeros((4, 3)))

    def step(carried: Any, index: Any) -> Any:
        with shard(1):
            ref[1] = ref[1] * carried
        with shard(0):
            rows[index] = ref[...]
        return carried + 1, ref[0]

    carried, firsts = lax.scan(step, 1.0, jnp.arange(4))

    def halve(c: Any) -> Any:
        with shard(1):
            ref[...] = ref[...] / 2
        return c - 1

    count = lax.while_loop(lambda c: c + ref[2] > 0, halve, 3)
    return carried, firsts, rows[...], count, ref[...]


def in_branches(x: Any) -> Any:
    ref = jax.new_ref(x)

    def add() -> None:
        with shard(1):
            ref[0] += 1.0

    def double() -> None:
        with shard(0):
            ref[...] *= 2

    for number in range(3):
        lax.switch(jnp.int32(x[0]) - 1 + number % 2, [add, double])
    return ref[...]


def in_calls(x: Any) -> Any:
    @jax.jit
    def push(ref: Any, value: Any) -> Any:
        with shard(1):
            ref[...] = ref[...] + value
        return ref[0]

    ref = jax.new_ref(x)
    return push(ref, 1.0), jax.checkpoint(lambda r: push(r, 2.0))(ref), ref[...]


def differentiated(x: Any) -> Any:
    def loss(x: Any) -> Any:
        ref = jax.new_ref(jnp.zeros_like(x))
        with shard(0):
            ref[...] = jnp.sin(x)
        with shard(1):
            ref[1] = ref[1] * x[2]
        return jnp.sum(ref[...] ** 2)

    return jax.value_and_grad(loss)(x)


@pytest.mark.sampled(2)
@ENGINES
@pytest.mark.parametrize(
    "fn", [straight, in_loops, in_branches, in_calls, differentiated], ids=lambda fn: fn.__name__
)
def test_refs_made_inside(fn: Callable[..., Any], engine: str) -> None:
    use_ipus(2)
    same(ipu.compile(fn, engine=engine)(X), jax.jit(fn)(X), exact=False)


@pytest.mark.sampled(2)
@ENGINES
@pytest.mark.parametrize("shards", [1, 2])
def test_arguments_and_what_is_closed_over(engine: str, shards: int) -> None:
    use_ipus(shards)
    held = jax.new_ref(jnp.float32(10))

    def fn(state: Any, x: Any) -> Any:
        with shard(shards - 1):
            state["sum"][...] += x
        with shard(0):
            held[...] = held[...] + state["sum"][0]
        return state["sum"][1] * x

    def fresh() -> Any:
        held[...] = 10.0
        return {"sum": jax.new_ref(jnp.zeros(3)), "plain": 1.0}

    runs = []
    for run in (jax.jit(fn), ipu.compile(fn, engine=engine)):
        state = fresh()
        results = [run(state, X), run(state, X * 2), run(state, X)]
        runs.append((results, state["sum"][...], held[...]))
    same(runs[1], runs[0])
    assert runs[1][2] == 10 + 1 + 3 + 4


def test_ahead_of_time() -> None:
    use_ipus(2)
    ref = jax.new_ref(jnp.zeros(3))

    def fn(ref: Any, x: Any) -> Any:
        with shard(1):
            ref[...] += x

    executable = ipu.compile(fn, engine="replay").lower(ref, X).compile()
    assert executable(ref, X) is None
    assert executable(ref, X) is None
    np.testing.assert_array_equal(ref[...], 2 * X)
    assert executable.report().cycles > 0
    with pytest.raises(TypeError, match=r"lowered with Refs as inputs \[0\].*\[\]"):
        executable(X, X)


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_a_ref_in_place_of_an_array(engine: str) -> None:
    executable = ipu.compile(lambda x: x + 1, engine=engine).lower(X).compile()
    for _ in range(2):  # before its first run, and after
        with pytest.raises(TypeError, match=r"lowered with Refs as inputs \[\].*\[0\]"):
            executable(jax.new_ref(jnp.asarray(X)))
        np.testing.assert_array_equal(executable(X), X + 1)


def test_another_ref_of_the_same_kind_is_not_compiled_for_again() -> None:
    use_ipus(1)
    traced = []

    @ipu.compile
    def fn(ref: Any) -> None:
        traced.append(1)
        ref[...] = ref[...] * 2

    refs = [jax.new_ref(jnp.full(3, float(n))) for n in range(3)]
    for ref in refs:
        fn(ref)
    count = len(traced)
    for ref in refs:
        fn(ref)
    assert len(traced) == count
    np.testing.assert_array_equal(jnp.stack([r[...] for r in refs])[:, 0], [0, 4, 8])


@pytest.mark.parametrize("engine", ["auto", "replay"])
def test_one_ref_in_two_places_is_refused(engine: str) -> None:
    use_ipus(1)
    ref, other = jax.new_ref(jnp.zeros(3)), jax.new_ref(jnp.ones(3))

    @compiled_for(engine)
    def fn(a: Any, b: Any) -> Any:
        a[...] = b[...] + 1

    fn(ref, other)
    with pytest.raises(ValueError, match=r"Ref twice|only one reference"):
        fn(ref, ref)
    np.testing.assert_array_equal(ref[...], [2, 2, 2])


def compiled_for(engine: str) -> Callable[..., Any]:
    return lambda fn: ipu.compile(fn, engine=engine)


@pytest.mark.parametrize("loop", ["repeat", "while_loop"])
def test_loops_with_queues(loop: str) -> None:
    use_ipus(1)
    data = [np.float32([i, -i, 1]) for i in range(5)]
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    total = jax.new_ref(jnp.zeros(3))

    def body(i: Any, x: Any, element: Any) -> Any:
        total[...] += element
        outfeed.enqueue(total[...])
        return i + 1, x * 2 + element[0]

    @ipu.compile
    def run() -> Any:
        if loop == "repeat":
            return ipu.loops.repeat(3, body, [0, 1.0], infeed)
        return ipu.loops.while_loop(lambda i, x: i < 3, body, [0, 1.0], infeed)

    assert list(map(float, run())) == [3, 12]
    np.testing.assert_array_equal(outfeed.dequeue(), np.cumsum(data[:3], 0))
    np.testing.assert_array_equal(total[...], [3, -3, 3])

    with pytest.raises(ipu.errors.OutOfRangeError) as caught:
        run()
    # The program did not end: the Ref has what it had, and the loop's variables are its own.
    assert list(map(float, caught.value.carried)) == [2, 14]
    np.testing.assert_array_equal(total[...], [3, -3, 3])


@ENGINES
def test_replicas_have_copies_and_the_first_one_counts(engine: str) -> None:
    use_ipus(2)
    ref = jax.new_ref(jnp.zeros(()))

    def fn(x: Any) -> Any:
        ref[...] += x + ipu.replication_ops.replication_index()
        return ipu.cross_replica_ops.cross_replica_sum(ref[...])

    run = ipu.compile(fn, engine=engine)
    assert run(1.0) == 3
    assert ref[...] == 1
    assert run(1.0) == 2 + 3  # both start from the first one's value
    assert ref[...] == 2


def test_a_fault_leaves_the_ref_alone() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.floating_point_behaviour.div0 = True
    config.configure_ipu_system()
    ref = jax.new_ref(jnp.ones(()))

    @ipu.compile
    def fn(x: Any) -> None:
        ref[...] = ref[...] / x

    fn(2.0)
    with pytest.raises(ipu.errors.FloatingPointError):
        fn(0.0)
    assert ref[...] == 0.5


def test_a_stage_of_a_pipeline_may_not_write_outside() -> None:
    use_ipus(2)
    ref = jax.new_ref(jnp.zeros(()))

    def first(x: Any) -> Any:
        ref[...] += x
        return x

    def run() -> Any:
        return ipu.pipelining_ops.pipeline(
            [first, lambda x: x * 2],
            gradient_accumulation_count=4,
            infeed_queue=ipu.ipu_infeed_queue.IPUInfeedQueue([np.float32(1)] * 4),
            outfeed_queue=ipu.ipu_outfeed_queue.IPUOutfeedQueue(),
        )

    wanted = r"(?s)stage uses a Ref from outside.*test_refs\.py.*fix:"
    with pytest.raises(ipu.errors.LoweringError, match=wanted):
        ipu.compile(run)()


@pytest.mark.exhaustive
def test_across_devices(run_with_devices: Any) -> None:
    printed = run_with_devices(
        4,
        """
        import jax, jax.numpy as jnp, numpy as np, ipujax as ipu
        config = ipu.config.IPUConfig(); config.auto_select_ipus = 2; config.configure_ipu_system()
        ref = jax.device_put(jnp.zeros(3), jax.devices()[3])
        ref = jax.new_ref(ref)

        @ipu.compile
        def fn(ref, x):
            with ipu.scopes.ipu_shard(1):
                ref[...] += x
            with ipu.scopes.ipu_shard(0):
                return ref[0] * 2

        print(fn(ref, np.float32([1, 2, 3])), fn(ref, 1.0), ref[...], ref.sharding.device_set)
        """,
    )
    assert printed.split() == "2.0 4.0 [2. 3. 4.] {CpuDevice(id=3)}".split()
