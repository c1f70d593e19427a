"""Lookups whose indices are known become slices, others do not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering import ir, machine
from lowering.jaxprs import function_of_jaxpr, walk_equations
from lowering.passes import drop_dead, simplify_gathers
from tests.lowering.samples import jaxpr_text, lowered, trace

TABLE = np.random.default_rng(0).normal(size=(10, 6)).astype(np.float32)
CUBE = np.random.default_rng(1).normal(size=(4, 10, 3)).astype(np.float32)

SLICES = {
    "a range": lambda t: jnp.take(t, jnp.arange(4), axis=0),
    "a range further on": lambda t: t[jnp.arange(3, 9)],
    "steps": lambda t: t[np.array([1, 4, 7])],
    "two dimensions of indices": lambda t: t[np.arange(8).reshape(2, 4)],
    "another axis": lambda t: t[:, np.array([1, 3, 5])],
    "one": lambda t: jnp.take(t, 3, axis=0),
    "one from the end": lambda t: jnp.take(t, -1, axis=1),
    "the same again": lambda t: t[np.array([2, 2, 2])],
    "in a loop": lambda t: lax.fori_loop(0, 3, lambda _, c: c + t[jnp.arange(3)].sum(), 0.0),
    "in jitted functions": jax.jit(lambda t: jnp.sin(t)[jnp.arange(5) + 2]),
    "clipped": lambda t: jnp.take(t, jnp.clip(jnp.arange(4), 0, 9), axis=0, mode="clip"),
}

LOOKUPS = {
    "out of range": lambda t: jnp.take(t, np.array([8, 9, 10]), axis=0),
    "back": lambda t: t[np.array([3, 2, 1])],
    "uneven": lambda t: t[np.array([1, 2, 4])],
    "unknown": lambda t: t[jnp.argsort(t[:, 0])],
    "of single elements": lambda t: t[np.arange(3), np.arange(3)],
    "parts of rows": lambda t: jax.vmap(lambda i: lax.dynamic_slice(t, (i, 0), (1, 2)))(
        jnp.arange(3)
    ),
}


def gathers(closed):
    return sum(eqn.primitive in (lax.gather_p, lax.scatter_add_p) for eqn in walk_equations(closed))


def changed(function, *operands):
    """Before and after, which give the same."""
    before = trace(function, *operands)
    after = simplify_gathers(before)
    for one, other in zip(*(function_of_jaxpr(c)(*operands) for c in (before, after)), strict=True):
        np.testing.assert_array_equal(one, other)
    return before, after


@pytest.mark.parametrize("case", SLICES)
def test_known_indices_in_even_steps_are_slices(case):
    before, after = changed(SLICES[case], TABLE)
    assert gathers(before) == 1
    assert gathers(after) == 0


@pytest.mark.parametrize("case", LOOKUPS)
def test_others_are_looked_up(case):
    before, after = changed(LOOKUPS[case], TABLE)
    assert gathers(before) == gathers(after) > 0
    assert jaxpr_text(before) == jaxpr_text(after)


def test_the_middle_axis_of_three(golden):
    def fn(t):
        return t[:, np.array([[1, 3], [5, 7]])], jnp.take(t, jnp.arange(2), axis=2)

    before, after = changed(fn, CUBE)
    assert (gathers(before), gathers(after)) == (2, 0)
    golden(jaxpr_text(drop_dead(after)))


@pytest.mark.parametrize("case", sorted(SLICES.keys() - {"in a loop"}))
def test_gradients_are_padding(case):
    before, after = changed(jax.grad(lambda t: (SLICES[case](t) ** 2).sum()), TABLE)
    assert gathers(before) >= 2
    assert gathers(after) == 0


def test_updates_of_other_values_stay():
    before, after = changed(lambda t: t.at[np.array([1, 3])].add(2.0), TABLE)
    assert gathers(before) == gathers(after) == 1


def test_lookups_of_what_others_add_stay():
    before, after = changed(jax.grad(lambda t: (t[jnp.argsort(t[:, 0])] ** 2).sum()), TABLE)
    assert gathers(before) == gathers(after) == 2


def test_slices_move_nothing():
    def positions(table, x):
        return x + jnp.take(table, jnp.arange(256), axis=0)

    operands = [np.ones((512, 128), np.float32), np.ones((256, 128), np.float32)]
    programs = [lowered(positions, *operands, simplify_gathers=on) for on in (False, True)]
    for program in programs:
        ir.verify(program)
    one, other = (machine.model(program, machine.ModelOptions()) for program in programs)
    assert other.cycles < one.cycles / 2
