"""Branches that counters decide on cost as often as they are taken."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

from ipujax.optimizers import CrossReplicaGradientAccumulationOptimizerV2
from lowering import Options, lower
from lowering.machine.programs import find_counted_branches
from tests.lowering.machine.samples import M, check_liveness, end, modelled, overlaps
from tests.lowering.samples import N, lowered, shard, trace

LENGTH = 12


def loop(step, start, length=LENGTH, spread=False):
    """`step(counter, x) -> (counter, predicate or index)` decides what happens to a matrix."""

    def fn(x, n):
        def body(carry, _):
            counter, y = carry
            counter, index = step(counter, y)
            ways = [lambda y: y, lambda y: y @ y, lambda y: jnp.sin(y @ y @ y)]
            y = lax.switch(index, ways, y) if not isinstance(index, tuple) else y
            if spread:  # another IPU, so that the loop is one of the program
                with shard(1):
                    s = jnp.sum(y)
                with shard(0):
                    y = y + s
            return (counter, y), None

        begin = n if start is None else jnp.int32(start)
        with shard(0):
            return lax.scan(body, (begin, x), None, length=length)[0][1]

    return lowered(fn, M, N, ipus=2 if spread else 1)


def every(count):
    return lambda i, _: ((i + 1) % count, ((i + 1) % count == 0).astype(jnp.int32))


def taken(program):
    turns = [
        found.tolist() for found in find_counted_branches(program).branch_at_iteration.values()
    ]
    assert all(found == turns[0] for found in turns)
    return turns[0] if turns else None


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize(
    ("step", "start", "expected"),
    [
        (every(4), 0, [0, 0, 0, 1] * 3),
        (every(4), None, [0, 0, 0, 1] * 3),  # from outside: taken as 0
        (lambda i, _: (i + 1, (i > 9).astype(jnp.int32)), 0, [0] * 10 + [1] * 2),
        (lambda i, _: (jnp.minimum(i + 1, 3), i), 0, [0, 1, 2, 2] + [2] * 8),
        (lambda i, _: (i + 1, (i % 2) * 2), 0, [0, 2] * 6),
        (lambda i, y: (i + 1, (y[0, 0] > 0).astype(jnp.int32)), 0, None),
        (lambda i, y: (i + y[0, 0].astype(jnp.int32), i % 2), 0, None),
    ],
)
def test_which_branch_is_taken(step, start, expected, spread):
    assert taken(loop(step, start, spread=spread)) == expected


def test_what_begins_elsewhere():
    assert taken(loop(every(4), 2)) == [0, 1, 0, 0] * 3


def test_long_loops_end_where_the_counter_comes_round():
    turns = taken(loop(every(4), 0, length=100_000))
    assert len(turns) == 100_000
    assert sum(turns) == 25_000
    never = loop(lambda i, _: (i + 1, (i > 5).astype(jnp.int32)), 0, length=100_000)
    assert taken(never) is None


@pytest.mark.parametrize("spread", [False, True])
def test_a_branch_costs_as_often_as_it_runs(spread):
    """Three of twelve iterations take the product, none, or all of them."""

    def below(most):
        def step(i, _):
            following = (i + 1) % 4
            return following, (following < most).astype(jnp.int32)

        return modelled(loop(step, 0, spread=spread))

    never, profile, always = map(below, (0, 1, 4))
    assert profile.cycles - never.cycles == (always.cycles - never.cycles) // 4 > 0
    assert end(profile.steps) <= profile.cycles
    assert not overlaps(profile.steps)
    check_liveness(profile)
    (product,) = [op for op in profile.operations if op.name.startswith("dot_general")]
    assert product.runs == 3


def test_equal_kernels_may_count_for_different_branches():
    """On IPU 0 a counter decides on the large product, on IPU 1 on the small one."""

    def compute(x, a, b):
        x = lax.cond(a % 4 == 0, lambda x: x @ x, lambda x: x, x)
        part = x[:32, :32]
        x = lax.cond(b % 4 == 0, lambda x: x.at[:32, :32].set(part @ part), lambda x: x, x)
        return x, a + 1, b + 1, x[0, 0].astype(jnp.int32)

    def fn(x):
        def body(carry, _):
            following = []
            for ipu, (x, a, b, *_) in enumerate(carry):
                with shard(ipu):
                    x, *counted, told = compute(x, a, b)
                counters = (told, counted[1]) if ipu else (counted[0], told)
                following.append((x, *counters, *counted))
            return following, None

        begin = [(x, *[jnp.int32(0)] * 4)] * 2
        return lax.scan(body, begin, None, length=LENGTH)[0]

    operations = modelled(lowered(fn, M, ipus=2)).operations
    runs = {(op.ipu, op.name.split()[1]): op.runs for op in operations if "dot_general" in op.name}
    large, small = "float32[64,64]", "float32[32,32]"
    assert runs == {(0, large): 3, (0, small): 12, (1, large): 12, (1, small): 3}


def test_optimizers_that_accumulate_exchange_once_per_update():
    """Two weights, twelve mini-batches, four of them per update: three updates."""
    optimizer = CrossReplicaGradientAccumulationOptimizerV2(optax.sgd(0.1), 4)

    def fn(a, b):
        def step(carry, _):
            weights, state = carry
            gradients = [w * 0.5 for w in weights]
            updates, state = optimizer.update(gradients, state, weights)
            return (optax.apply_updates(weights, updates), state), None

        weights = [a, b]
        state = optimizer.init(weights)
        return lax.scan(step, (weights, state), None, length=LENGTH)[0][0]

    program = lower(trace(fn, M, M), Options(num_ipus=2, replicas=2))
    assert program.replicas == 2
    profile = modelled(program)
    sums = [op for op in profile.operations if op.name.startswith("psum")]
    assert sum(op.runs for op in sums) == 2 * 3
    each = {step.cycles for step in profile.steps if step.kind == "inter_ipu"}
    links = [step for step in profile.steps if step.kind == "inter_ipu"]
    assert (len(links), len(each)) == (6, 1)
    starts = np.diff(sorted(step.start_cycle for step in links))
    assert starts[1] == starts[3]  # the updates are equally far from each other
    assert starts[1] > 3 * starts[0]


def test_a_loop_that_is_too_long_is_taken_at_its_slowest():
    def often(x):
        def body(carry, _):
            step, x = carry
            return (step + 1, lax.cond(step % 2 == 0, lambda x: x @ x, lambda x: x, x)), None

        return lax.scan(body, (0, x), None, length=1 << 40)[0]

    assert modelled(lowered(often, M)).cycles > 1 << 40


def test_a_loop_may_leave_a_literal():
    def fn(x):
        def body(carry, _):
            return (jnp.float32(1.0), carry[1] + carry[0]), None

        return lax.scan(body, (x, x), None, length=3)[0]

    assert modelled(lowered(fn, np.float32(2))).cycles > 0
