"""Slices of jaxprs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering import jaxpr
from lowering.equations import renamed, sliced, values_of, variables
from lowering.pipelines.slices import (
    acts,
    dependent,
    needed_for,
    read_from_outside,
    recomputable,
    with_actions,
)
from tests.lowering.samples import V, trace


def two_chains(a, b):
    first = jnp.sin(a)
    second = jnp.cos(b)
    return first * 2.0, second + first


def names(eqns):
    return [eqn.primitive.name for eqn in eqns]


def test_what_a_result_needs():
    inner = trace(two_chains, V, V).jaxpr
    one, both = inner.outvars
    assert names(needed_for(inner.eqns, [one])) == ["sin", "mul"]
    assert names(needed_for(inner.eqns, [both])) == ["sin", "cos", "add"]
    assert names(needed_for(inner.eqns, [both], known=inner.eqns[0].outvars)) == ["cos", "add"]


def test_what_a_slice_reads():
    inner = trace(two_chains, V, V).jaxpr
    assert read_from_outside(inner.eqns[2:], inner.outvars) == [
        inner.eqns[0].outvars[0],
        inner.eqns[1].outvars[0],
    ]
    assert read_from_outside(inner.eqns, inner.invars) == list(inner.invars)


def test_what_depends_on_an_argument():
    inner = trace(two_chains, V, V).jaxpr
    a, b = inner.invars
    assert dependent(inner.eqns, [b]) == {b, inner.eqns[1].outvars[0], inner.outvars[1]}
    assert inner.outvars[1] in dependent(inner.eqns, [a])


def test_a_slice_is_a_function():
    inner = trace(two_chains, V, V).jaxpr
    (sin, *_), (one, _) = inner.eqns, inner.outvars
    eqns = needed_for(inner.eqns, [one], known=sin.outvars)
    closed = sliced(inner, sin.outvars, [one], eqns)
    x = np.arange(3.0, dtype=np.float32)
    (doubled,) = jaxpr.run_equations(closed.jaxpr, (), [x])
    np.testing.assert_array_equal(doubled, 2 * x)


def test_names_and_values_of_literals():
    inner = trace(lambda a: a + 1.0, V).jaxpr
    (add,) = inner.eqns
    new = jaxpr.fresh_var(add.invars[0].aval)
    assert renamed(add.invars, {add.invars[0]: new})[0] is new
    assert values_of(add.invars, {add.invars[0]: 5}) == [5, 1.0]
    assert variables(add.invars) == [add.invars[0]]


def test_what_acts_is_kept_with_what_it_reads():
    def program(a):
        jax.debug.print("{}", jnp.sin(a))
        return jnp.cos(a)

    inner = trace(program, V).jaxpr
    kept = with_actions(inner.eqns, needed_for(inner.eqns, inner.outvars))
    assert kept == list(inner.eqns)
    assert len(with_actions([e for e in inner.eqns if not acts(e)], [])) == 0


def test_talking_to_replicas_is_no_action():
    closed = jaxpr.trace_flat(lambda a: [jax.lax.psum(a, "replicas")], [V], ("replicas", 2))
    assert closed.jaxpr.eqns[0].effects
    assert not acts(closed.jaxpr.eqns[0])


# --- what is computed again rather than kept ------------------------------------------------------


def cheap(eqn):
    return eqn.primitive.name in ("add", "mul", "sub", "neg")


def again(function, *avals, available=()):
    inner = trace(function, *avals).jaxpr
    given = {inner.invars[i] for i in available}
    return names(recomputable(inner.eqns, set(inner.outvars), given, cheap))


@pytest.mark.parametrize(
    ("function", "available", "run_again"),
    [
        (lambda a: (jnp.sin(a), jnp.sin(a) + 1.0), (), []),  # of two sines, neither is the other
        (lambda a: a + 1.0, (0,), ["add"]),
        (lambda a: a + 1.0, (), []),  # keeping `a` instead would save nothing
        (lambda a: -(a + 1.0), (0,), ["add", "neg"]),
        (lambda a: jnp.sin(a) + 1.0, (0,), []),
    ],
)
def test_recomputable(function, available, run_again):
    assert again(function, V, available=available) == run_again


def test_one_kept_value_gives_another():
    def program(a):
        s = jnp.sin(a)
        return s, 1.0 - s * s

    assert again(program, V) == ["mul", "sub"]


def test_long_chains_are_kept_instead():
    def chain(length):
        def program(a):
            for _ in range(length):
                a = a + 1.0
            return a

        return again(program, V, available=(0,))

    assert len(chain(16)) == 16
    assert chain(17) == [] == chain(3000)


@given(
    st.lists(st.tuples(st.sampled_from("csa"), st.integers(0, 9), st.integers(0, 9)), max_size=9)
)
def test_what_is_run_again_can_run(steps):
    """Everything that is run again reads what is there, and all that was required can be had."""

    def program(a, b):
        values = [a, b]
        for kind, i, j in steps:
            x, y = values[i % len(values)], values[j % len(values)]
            values.append({"c": jnp.cos(x), "s": x * y, "a": x + y}[kind])
        return values[2:]

    inner = trace(program, V, V).jaxpr
    required = set(inner.outvars[::2]) - set(inner.invars)
    chosen = recomputable(inner.eqns, required, {inner.invars[0]}, cheap)
    made = {v for eqn in chosen for v in eqn.outvars}
    known = {inner.invars[0]} | (required - made)
    for eqn in chosen:
        assert cheap(eqn)
        assert known.issuperset(variables(eqn.invars))
        known |= set(eqn.outvars)
    assert required <= known
