"""Loads and stores move to where their values are used; nothing else moves."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jax import lax

from lowering import ir
from lowering.ops import Storage, bring_from_storage, move_to_storage
from lowering.passes import drop_dead, inline_calls, load_late, partition, place
from tests.lowering.samples import N, V, W, shard, trace

REMOTE = Storage(remote=True)


def parted(fn, *args):
    placed = place(drop_dead(inline_calls(trace(fn, *args))))
    return partition(placed, name="main", ipus=2, replicas=1)


def update(first, second, gradient):
    """Two states that are loaded, worked on and stored, one after the other."""
    first, second = (bring_from_storage(kept, REMOTE) for kept in (first, second))
    first, second = (state * 0.9 + gradient for state in (first, second))
    return move_to_storage(first, REMOTE), move_to_storage(second, REMOTE)


def test_one_after_the_other(golden):
    def fn(first, second, gradient):
        kept = update(move_to_storage(first, REMOTE), move_to_storage(second, REMOTE), gradient)
        return [bring_from_storage(k, REMOTE) for k in kept]

    golden(ir.to_text(load_late(parted(fn, V, W, V.update(shape=())))))


def test_inside_loops(golden):
    def fn(first, second, gradient):
        kept = move_to_storage(first, REMOTE), move_to_storage(second, REMOTE)
        kept, _ = lax.scan(lambda k, _: (update(*k, gradient), None), kept, None, length=3)
        return [bring_from_storage(k, REMOTE) for k in kept]

    golden(ir.to_text(load_late(parted(fn, V, W, V.update(shape=())))))


def test_inside_branches(golden):
    def fn(x, n):
        kept = move_to_storage(x, REMOTE)

        def first(a):
            with shard(0):
                y = bring_from_storage(kept, REMOTE)
            with shard(1):
                b = jnp.sin(a)
            with shard(0):
                return y * b

        return lax.switch(n, [first, jnp.cos], x)

    golden(ir.to_text(load_late(parted(fn, V, N))))


def test_inside_while_loops(golden):
    def fn(x, n):
        kept = move_to_storage(x, REMOTE)

        def step(c):
            y = bring_from_storage(kept, REMOTE)
            with shard(1):
                b = jnp.sin(c[1])
            with shard(0):
                return c[0] + 1, y * b

        return lax.while_loop(lambda c: c[0] < n, step, (jnp.int32(0), x))

    golden(ir.to_text(load_late(parted(fn, V, N))))


def test_programs_without_storage_stay_as_they_are():
    def fn(x, n):
        with shard(0):
            a = jnp.sin(x)
        with shard(1):
            b = lax.fori_loop(0, n, lambda _, c: c * a, a)
        return a, b

    program = parted(fn, V, N)
    assert ir.to_text(load_late(program)) == ir.to_text(program)


def test_what_is_loaded_for_the_end_is_loaded_last():
    def fn(x):
        kept = move_to_storage(x, REMOTE)
        early = bring_from_storage(kept, REMOTE)
        with shard(1):
            y = jnp.sin(x)
        return early, y

    steps = load_late(parted(fn, V)).body.steps
    assert [type(step).__name__ for step in steps] == ["Store", "Execute", "Load"]


def test_what_is_stored_of_a_loaded_value_can_be_loaded_again():
    def fn(x):
        kept = move_to_storage(x, REMOTE)
        once = bring_from_storage(kept, REMOTE)
        again = bring_from_storage(move_to_storage(once, REMOTE), REMOTE)
        return again + 1, once

    steps = load_late(parted(fn, V)).body.steps
    assert [type(step).__name__ for step in steps] == ["Store", "Load", "Store", "Load", "Execute"]


# --- random programs ------------------------------------------------------------------------------

operations = st.lists(
    st.tuples(st.sampled_from(["store", "load", "sin", "add"]), st.integers(0, 20)), max_size=14
)


def positions(program):
    """Where every value is made, and where read for the first time."""
    made = dict.fromkeys(program.inputs, -1)
    first: dict[int, int] = {}
    for i, node in enumerate(program.body.steps):
        for value in ir.values_read(node):
            first.setdefault(value, i)
        made.update(dict.fromkeys(ir.values_written(node), i))
    return made, first


@pytest.mark.exhaustive
@given(operations)
@example([("load", 0), ("store", 2), ("load", 1), ("add", 0)])
def test_dependencies_are_kept_and_loads_are_late(operations):
    def fn(x):
        values, kept = [x, x + 1], [move_to_storage(x * 2, REMOTE)]
        for i, (what, number) in enumerate(operations):
            value, stored = values[number % len(values)], kept[number % len(kept)]
            with shard(i % 2):
                match what:
                    case "store":
                        kept.append(move_to_storage(value, REMOTE))
                    case "load":
                        values.append(bring_from_storage(stored, REMOTE))
                    case "sin":
                        values.append(jnp.sin(value))
                    case _:
                        values.append(value + values[-1])
        return values

    before = parted(fn, V)
    after = load_late(before)
    assert sorted(map(id, after.body.steps)) == sorted(map(id, before.body.steps))
    made, first = positions(after)
    steps = after.body.steps
    for i, node in enumerate(steps):
        assert all(made[value] < i for value in ir.values_read(node))
        if isinstance(node, ir.Load) and node.value in first:
            # Between a load and its reader there are other loads only, and what is stored at once.
            between = steps[i + 1 : first[node.value]]
            assert all(isinstance(step, ir.Load | ir.Store) for step in between)
        if isinstance(node, ir.Store) and made[node.value] >= 0:
            assert all(isinstance(s, ir.Load | ir.Store) for s in steps[made[node.value] + 1 : i])
    others = [n for n in steps if not isinstance(n, ir.Load | ir.Store)]
    assert others == [n for n in before.body.steps if not isinstance(n, ir.Load | ir.Store)]


def test_one_value_may_be_stored_twice():
    def fn(x):
        y = jnp.sin(x)
        return [bring_from_storage(move_to_storage(y, REMOTE), REMOTE) for _ in range(2)]

    before = parted(fn, V)
    after = load_late(before)
    assert sorted(map(id, after.body.steps)) == sorted(map(id, before.body.steps))
