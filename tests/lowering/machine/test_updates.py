"""New values go where the old ones were: what is a variable, and what lives beside it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from lowering import ir
from lowering.machine.programs import find_loop_updates, find_updates
from tests.lowering.machine.samples import BYTES, A, homes, kernel, modelled
from tests.lowering.samples import N, lowered, shard

HALF = jax.ShapeDtypeStruct((1024,), jnp.float16)
WIDE = jax.ShapeDtypeStruct((4096,), jnp.float32)


def places(fn, *args, donated=()):
    """By result, the argument in whose place it goes, both counted from 0."""
    program = lowered(fn, *args, ipus=1)
    inputs, outputs = list(program.inputs), list(program.outputs)
    pairs = find_updates(program, donated).items()
    return {outputs.index(new): inputs.index(old) for (old, _), (new, _) in pairs}


def left(fn, *args):
    """Bytes that are not always there, at the last step of a program on one IPU."""
    (home,) = homes(lowered(fn, *args, ipus=1))
    return int(home.alive.bytes[-1])


def adam(state, weights, batch):
    """The state comes first, so that weights could take its place."""
    mu, nu = (jax.tree.map(lambda old, new: 0.9 * old + new, old, batch) for old in state)
    step = jax.tree.map(lambda w, m, n: w - m / jnp.sqrt(n), weights, mu, nu)
    return step, (mu, nu)


def test_weights_and_state_find_their_own_places():
    def fn(mu, nu, w, g):
        new, (mu, nu) = adam((mu, nu), w, g)
        return new, mu, nu

    assert places(fn, A, A, A, A) == {0: 2, 1: 0, 2: 1}


@pytest.mark.parametrize(
    ("fn", "found"),
    [
        (lambda a, b: (a + b, a - b), {0: 0, 1: 1}),
        (lambda a, b: (b, a), {}),  # they are there already
        (lambda a, b: a[::-1] + b[::-1], {}),  # elements of other elements
        (lambda a, b: a.at[3].set(1.0), {0: 0}),
        (lambda a, b: jax.jit(lambda x: jnp.where(x > 0, x, b))(a), {0: 0}),
        (lambda a, b: lax.cond(b[0] > 0, lambda: a * 2, lambda: a), {0: 0}),
        (lambda a, b: lax.fori_loop(0, 3, lambda _, c: c[::-1], b), {0: 1}),
        (lambda a, b: (a + b).astype(jnp.float16), {}),
        (lambda a, b: a.sum() + b[0], {}),
    ],
)
def test_what_is_an_update_of_what(fn, found):
    assert places(fn, A, A) == found


def test_a_donated_argument_gives_its_place_to_whatever_is_like_it():
    def fn(a, b):
        return b[::-1], a[::-1]

    assert places(fn, A, A) == {}
    assert places(fn, A, A, donated=[1]) == {0: 1}
    assert places(fn, A, A, donated=[0, 1]) == {0: 0, 1: 1}
    assert places(fn, HALF, A, donated=[0, 1]) == {0: 1, 1: 0}


def test_a_donated_argument_makes_a_result_a_variable():
    program = lowered(lambda a: jnp.concatenate([a[512:], a[:512]]), A, ipus=1)
    kept, given = (modelled(program, donated=d).liveness[0] for d in ((), (0,)))
    assert (int(kept.bytes[-1]), int(given.bytes[-1])) == (BYTES, BYTES)  # a copy, then in place
    assert [t.category for t in given.tensors] == ["variables", "activations"]


def test_an_update_waits_for_the_last_reader_of_the_old_value():
    """`new` is there beside `w` until the product has read that, and in its place afterwards."""

    def fn(w, x):
        new = w - 0.1 * x
        return new, jnp.tanh(jnp.concatenate([w * jnp.flip(new), x]))

    assert left(fn, A, A) == 2 * BYTES  # the tanh alone


def test_in_branches_too():
    """What one branch hands on, the other writes over: nothing lives beside the variables."""

    def fn(m, g, n):
        def due():
            return 0.9 * m + g, jnp.zeros_like(g)

        return lax.cond(n > 0, due, lambda: (m, g))

    cost = kernel(fn, A, A, N)
    alive, taken = cost.life.liveness_with_donated(frozenset({0, 1}))
    assert taken == (0, 1)
    assert int(alive.bytes.max()) <= 8  # the predicate
    alive, taken = cost.life.liveness_with_donated(frozenset({0}))
    assert taken == (0, None)
    alive, taken = cost.life.liveness_with_donated(frozenset())
    assert taken == (None, None)
    assert int(alive.bytes.max()) == 2 * BYTES


def test_what_is_read_again_is_not_written_over_in_a_branch():
    def fn(m, n):
        new = lax.cond(n > 0, lambda: m * 2, lambda: m)
        return new, new * m

    alive, _ = kernel(fn, A, N).life.liveness_with_donated(frozenset({0}))
    assert int(alive.bytes.max()) == BYTES


def test_branches_on_several_ipus():
    """The result is where the argument was, and not beside it."""

    def fn(x, n):
        def doubled(a):
            with shard(0):
                b = jnp.sin(a)
            with shard(1):
                return b * 2

        z = lax.switch(n, [doubled, lambda a: a], x)
        with shard(1):
            return z[:8].sum()

    program = lowered(fn, A, N, ipus=2)
    assert any(isinstance(node, ir.Switch) for node in ir.walk_nodes(program.body))
    assert int(homes(program)[1].alive.bytes[-1]) < BYTES


def test_what_an_iteration_leaves_goes_where_it_started():
    def fn(w, x):
        def step(c, _):
            with shard(0):
                new = c - 0.1 * x
                s = (c * jnp.flip(new)).sum()
            with shard(1):
                t = s * 2
            with shard(0):
                return new + t, None

        w = lax.scan(step, w, None, length=3)[0]
        with shard(0):
            return w, w[:8].sum()

    program = lowered(fn, A, A, ipus=2)
    ((old, new),) = find_loop_updates(program).items()
    assert old[1] == new[1] == 0
    first = homes(program)[0]
    assert int(first.alive.bytes[-1]) < BYTES
    assert int(first.alive.bytes.max()) <= 2 * BYTES + 16  # new, and its flipped copy
