from __future__ import annotations

import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lowering.jaxprs import Primitive, equations_with_bodies, sub_jaxprs, walk_equations
from tests.lowering.samples import V, trace


def nested(x):
    x = jnp.sin(x)
    x = lax.cond(x[0] > 0, jax.jit(jnp.cos), jnp.tan, x)
    return lax.fori_loop(0, 3, lambda i, c: jnp.exp(c), x) * 2


def names(eqns):
    return [eqn.primitive.name for eqn in eqns]


def test_a_walk_gives_each_equation_before_those_of_its_bodies():
    walked = names(walk_equations(trace(nested, V)))
    chosen = walked.index("cond")
    assert walked[0] == "sin"
    assert walked[chosen : chosen + 4] == ["cond", "tan", "jit", "cos"]
    assert walked[-1] == "mul"


def test_a_walk_stays_out_of_bodies_that_it_may_not_enter():
    closed = trace(nested, V)
    assert names(walk_equations(closed, lambda body: False)) == names(closed.jaxpr.eqns)


def test_equations_with_bodies_are_those_of_the_jaxpr_itself():
    jaxpr = trace(nested, V).jaxpr
    expected = [eqn for eqn in jaxpr.eqns if sub_jaxprs(eqn)]
    assert names(expected) == ["cond", "scan"]
    assert list(map(id, equations_with_bodies(jaxpr))) == list(map(id, expected))
    assert list(map(id, equations_with_bodies(jaxpr))) == list(map(id, expected))  # as kept


def test_a_jaxpr_that_was_walked_is_freed():
    closed = trace(nested, V)
    jaxpr = weakref.ref(closed.jaxpr)
    assert equations_with_bodies(closed)
    del closed
    jax.clear_caches()
    gc.collect()
    assert jaxpr() is None


class Holder:
    """As a queue does whose data set holds the program that reads it."""

    jaxpr: Any = None


def jaxpr_in_its_own_equation():
    holds = Primitive("holds")
    holds.def_abstract_eval(lambda x, holder: x)
    holder = Holder()

    def body(x, _):
        return holds.bind(x, holder=holder), None

    holder.jaxpr = trace(lambda x: lax.scan(body, x, None, 3)[0], V).jaxpr
    return holder.jaxpr


def test_a_jaxpr_that_its_own_equations_hold_is_freed():
    jaxpr = jaxpr_in_its_own_equation()
    assert names(equations_with_bodies(jaxpr)) == ["scan"]
    jaxpr = weakref.ref(jaxpr)
    jax.clear_caches()
    gc.collect()
    assert jaxpr() is None
