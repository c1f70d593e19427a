"""What a stage keeps, and what it computes again: the fewest bytes that will do."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowering.jaxprs import size_in_bytes, unique_variables
from lowering.keeping import insert_recomputation_before_readers, select_equations_to_recompute
from lowering.keeping.choice import is_cheap_to_recompute
from lowering.pipelines import variables_read_from_outside
from tests.lowering.samples import V, trace


def names(eqns):
    return [eqn.primitive.name for eqn in eqns]


def cheap(eqn):
    return eqn.primitive.name in ("add", "mul", "sub", "neg")


def again(function, *avals, available=()):
    inner = trace(function, *avals).jaxpr
    given = {inner.invars[i] for i in available}
    return names(select_equations_to_recompute(inner.eqns, set(inner.outvars), given, cheap))


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
def test_what_is_run_again(function, available, run_again):
    assert again(function, V, available=available) == run_again


def test_one_kept_value_gives_another():
    def program(a):
        s = jnp.sin(a)
        return s, 1.0 - s * s

    assert again(program, V) == ["mul", "sub"]


def test_of_equally_many_bytes_the_later_are_kept():
    """So nothing runs twice in vain, however long the chain."""

    def program(a):
        for _ in range(3000):
            a = a + 1.0
        return a

    assert again(program, V) == []
    assert again(program, V, available=(0,)) == ["add"] * 3000


def test_one_value_is_kept_for_several():
    def program(a):
        s = jnp.sin(a)
        return s + 1.0, s * 2.0, -(s * 2.0)

    assert again(program, V) == ["add", "mul", "mul", "neg"]


def test_half_a_precision_is_kept_for_a_whole_one():
    def program(a):
        return jax.lax.convert_element_type(jnp.sin(a.astype(jnp.float16)), jnp.float32) + 1.0

    inner = trace(program, V).jaxpr
    eqns = select_equations_to_recompute(
        inner.eqns, set(inner.outvars), (), lambda e: e.primitive.name != "sin"
    )
    assert names(eqns) == ["convert_element_type", "add"]


def kept_bytes(chosen, required, available):
    """What must be kept if `chosen` run again, in bytes."""
    made = {v for eqn in chosen for v in eqn.outvars}
    reads = {*required, *variables_read_from_outside(chosen, [])} - made - set(available)
    return sum(size_in_bytes(v.aval) for v in reads)


@given(
    st.lists(st.tuples(st.sampled_from("csawh"), st.integers(0, 9), st.integers(0, 9)), max_size=6),
    st.sets(st.integers(0, 9)),
)
@settings(max_examples=40)
def test_no_other_choice_keeps_less(steps, wanted):
    """Against every set of cheap equations, one after the other."""

    def program(a, b):
        values = [a, b]
        for kind, i, j in steps:
            x, y = values[i % len(values)], values[j % len(values)]
            of_kind = {
                "c": lambda x=x: jnp.cos(x),
                "s": lambda x=x, y=y: x * y,
                "a": lambda x=x, y=y: x + y,
                "w": lambda x=x: jnp.broadcast_to(x, (2, *x.shape)),
                "h": lambda x=x: x.astype(jnp.float16),
            }
            if kind in "cwh" or x.shape == y.shape:
                values.append(of_kind[kind]())
        return values

    inner = trace(program, V, V).jaxpr
    results = unique_variables(inner.outvars)
    required = {results[i % len(results)] for i in wanted} - set(inner.invars)
    able = [eqn for eqn in inner.eqns if is_cheap_to_recompute(eqn) and eqn.primitive.name != "cos"]

    def may(eqn):
        return any(eqn is other for other in able)

    found = select_equations_to_recompute(inner.eqns, required, {inner.invars[0]}, may)
    least = min(
        kept_bytes(chosen, required, {inner.invars[0]})
        for count in range(len(able) + 1)
        for chosen in itertools.combinations(able, count)
    )
    assert kept_bytes(found, required, {inner.invars[0]}) == least


def test_what_is_run_again_runs_just_in_time():
    def program(a):
        one, two = a + 1.0, a * 2.0
        return jnp.sin(two), jnp.cos(one - two)

    eqns = trace(program, V).jaxpr.eqns
    again, behind = eqns[:2] + eqns[3:4], [eqns[2], eqns[4]]
    assert names(behind) == ["sin", "cos"]
    assert names(insert_recomputation_before_readers(again, behind)) == [
        "mul",
        "sin",
        "add",
        "sub",
        "cos",
    ]
