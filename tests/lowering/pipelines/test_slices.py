"""Slices of jaxprs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lowering.jaxprs import (
    jaxpr,
    jaxpr_of_equations,
    look_up_values,
    rename_atoms,
    unique_variables,
)
from lowering.pipelines import (
    add_equations_with_actions,
    has_effect_besides_collectives,
    select_equations_for,
    variables_depending_on,
    variables_read_from_outside,
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
    assert names(select_equations_for(inner.eqns, [one])) == ["sin", "mul"]
    assert names(select_equations_for(inner.eqns, [both])) == ["sin", "cos", "add"]
    assert names(select_equations_for(inner.eqns, [both], available=inner.eqns[0].outvars)) == [
        "cos",
        "add",
    ]


def test_what_a_slice_reads():
    inner = trace(two_chains, V, V).jaxpr
    assert variables_read_from_outside(inner.eqns[2:], inner.outvars) == [
        inner.eqns[0].outvars[0],
        inner.eqns[1].outvars[0],
    ]
    assert variables_read_from_outside(inner.eqns, inner.invars) == list(inner.invars)


def test_what_depends_on_an_argument():
    inner = trace(two_chains, V, V).jaxpr
    a, b = inner.invars
    assert variables_depending_on(inner.eqns, [b]) == {
        b,
        inner.eqns[1].outvars[0],
        inner.outvars[1],
    }
    assert inner.outvars[1] in variables_depending_on(inner.eqns, [a])


def test_a_slice_is_a_function():
    inner = trace(two_chains, V, V).jaxpr
    (sin, *_), (one, _) = inner.eqns, inner.outvars
    eqns = select_equations_for(inner.eqns, [one], available=sin.outvars)
    closed = jaxpr_of_equations(inner, sin.outvars, [one], eqns)
    x = np.arange(3.0, dtype=np.float32)
    (doubled,) = jaxpr.run_equations(closed.jaxpr, (), [x])
    np.testing.assert_array_equal(doubled, 2 * x)


def test_names_and_values_of_literals():
    inner = trace(lambda a: a + 1.0, V).jaxpr
    (add,) = inner.eqns
    new = jaxpr.fresh_var(add.invars[0].aval)
    assert rename_atoms(add.invars, {add.invars[0]: new})[0] is new
    assert look_up_values(add.invars, {add.invars[0]: 5}) == [5, 1.0]
    assert unique_variables(add.invars) == [add.invars[0]]


def test_what_acts_is_kept_with_what_it_reads():
    def program(a):
        jax.debug.print("{}", jnp.sin(a))
        return jnp.cos(a)

    inner = trace(program, V).jaxpr
    kept = add_equations_with_actions(inner.eqns, select_equations_for(inner.eqns, inner.outvars))
    assert kept == list(inner.eqns)
    assert (
        len(
            add_equations_with_actions(
                [e for e in inner.eqns if not has_effect_besides_collectives(e)], []
            )
        )
        == 0
    )


def test_talking_to_replicas_is_no_action():
    closed = jaxpr.trace_flat(lambda a: [jax.lax.psum(a, "replicas")], [V], ("replicas", 2))
    assert closed.jaxpr.eqns[0].effects
    assert not has_effect_besides_collectives(closed.jaxpr.eqns[0])
