"""State that is stored by weight updates is stored in the loops around them from the start."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from jax import lax

from lowering import ir
from lowering.ops import Storage, bring_from_storage, move_to_storage
from lowering.passes import drop_dead, inline_calls, keep_loop_variables_stored, partition, place
from tests.lowering.samples import V, W, trace

REMOTE, HALF = Storage(remote=True), Storage(remote=True, sharded=True)


def parted(fn, *args):
    placed = place(drop_dead(inline_calls(trace(fn, *args))))
    return partition(placed, name="main", ipus=2, replicas=1)


def kept(fn, *args):
    return keep_loop_variables_stored(parted(fn, *args))


def update(state, storage=REMOTE):
    return move_to_storage(bring_from_storage(state, storage) * 0.9, storage)


def due(state, step):
    return lax.cond(step == 1, update, lambda state: state, state)


def loop(body, state, length=4):
    return lax.scan(lambda s, i: (body(s, i), None), state, jnp.arange(length))[0]


def stores_of(program):
    """Those at the top of a program, and those anywhere else."""
    first = [node for node in program.body.steps if isinstance(node, ir.Store)]
    everywhere = [node for node in ir.walk_nodes(program.body) if isinstance(node, ir.Store)]
    return len(first), len(everywhere) - len(first)


def test_an_argument_is_stored_before_its_loop_and_loaded_after(golden):
    golden(ir.to_text(kept(lambda state: loop(due, state), V)))


def test_a_loop_in_a_loop_keeps_it_stored(golden):
    golden(ir.to_text(kept(lambda s: loop(lambda s, _: loop(due, s), s), V)))


def test_a_loop_around_one_that_stores_and_loads_by_itself(golden):
    def inner(state, _):
        return bring_from_storage(loop(due, move_to_storage(state, REMOTE)), REMOTE)

    golden(ir.to_text(kept(lambda state: loop(inner, state), V)))


def test_what_reads_it_beside_updates_loads_it(golden):
    def body(state, step):
        return due(state * 2.0, step)

    golden(ir.to_text(kept(lambda state: loop(body, state), V)))


def test_branches_and_whiles_hand_it_on():
    def inner(carry):
        step, state = carry
        return step + 1, loop(due, state)

    def fn(state, go):
        def run(state):
            return lax.while_loop(lambda c: c[0] < 3, inner, (0, state))[1]

        return lax.cond(go, run, lambda state: state, state)

    assert stores_of(kept(fn, V, jnp.bool_(True))) == (1, 1)


def test_an_argument_that_is_only_loaded_is_stored_first():
    program = kept(lambda state: bring_from_storage(state, REMOTE) + 1.0, V)
    assert stores_of(program) == (1, 0)


def test_a_value_that_is_made_is_not_stored_for_one_load():
    assert stores_of(kept(lambda x: bring_from_storage(x + 1.0, REMOTE) + 1.0, V)) == (0, 0)


def test_what_nobody_stores_stays_as_it_is():
    def fn(state, other):
        return loop(due, state), loop(lambda o, _: o * 2.0, other)

    program = kept(fn, V, W)
    assert stores_of(program) == (1, 1)
    assert keep_loop_variables_stored(unstored := parted(lambda w: w * 2.0, W)) is unstored


def test_branches_that_store_in_two_ways_leave_whole_values(golden):
    def body(state, step):
        whole = update(state)
        return lax.cond(step == 1, lambda s: update(s, HALF), lambda s: s, whole)

    golden(ir.to_text(kept(lambda state: loop(body, state), V)))


@pytest.mark.parametrize("loops", [1, 2, 3])
def test_running_it_twice_changes_nothing(loops):
    body = due
    for _ in range(loops - 1):
        body = lambda s, _, inner=body: loop(inner, s, 2)  # noqa: E731
    once = kept(lambda state: loop(body, state), V)
    assert ir.to_text(keep_loop_variables_stored(once)) == ir.to_text(once)
