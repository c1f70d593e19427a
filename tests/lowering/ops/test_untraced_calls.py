"""Jaxprs that are evaluated while others are traced, without a second trace of their own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowering.jaxprs import (
    inline_jitted_calls,
    jaxpr,
    name_stack,
    user_frames_key,
    with_constants_in_order_of_reading,
)
from lowering.pipelines import evaluate_without_tracing, trace_with_untraced_calls
from tests.lowering.samples import S, V, trace

TABLE, OTHER = np.arange(3.0, dtype=np.float32), jnp.ones(3)


def stage(x):
    with jax.named_scope("stage"):
        y = jnp.sin(x) * OTHER
    return y + TABLE, y * 2


def surrounded(evaluate: Any) -> Any:
    def function(x):
        with jax.named_scope("outside"):
            first, second = evaluate(x * TABLE)
        return first - second

    return function


def sources(closed: Any) -> list[Any]:
    return [(name_stack(e), user_frames_key(e)) for e in closed.jaxpr.eqns]


@pytest.mark.parametrize("remat", [False, True])
def test_it_is_as_if_it_was_traced_again(remat):
    closed = trace(stage, V)
    wrap = jax.checkpoint if remat else lambda function: function
    again = jaxpr.trace_flat(
        surrounded(wrap(lambda x: jaxpr.run_equations(closed.jaxpr, closed.consts, [x]))), [V]
    )
    taken_over = trace_with_untraced_calls(
        surrounded(wrap(lambda x: evaluate_without_tracing(closed, [x]))), [V]
    )
    assert str(taken_over) == str(again)
    assert list(map(id, taken_over.consts)) == list(map(id, again.consts))
    if not remat:
        assert sources(taken_over)[1:-1] == sources(again)[1:-1]


def test_known_operands_are_folded_as_in_a_trace():
    closed = trace(lambda x, y: x * y.astype(jnp.bfloat16), jax.ShapeDtypeStruct((), "bfloat16"), S)
    evaluate = lambda x: evaluate_without_tracing(closed, [x, jnp.float32(2)])  # noqa: E731
    taken_over = trace_with_untraced_calls(evaluate, [closed.in_avals[0]])
    assert [eqn.primitive.name for eqn in taken_over.jaxpr.eqns] == ["mul"]


def test_conversions_of_literals_inside_are_folded():
    closed = trace(lambda x: jax.jit(lambda x, y: x * y.astype(x.dtype))(x, 2), V)
    opened = inline_jitted_calls(closed)
    assert len(opened.jaxpr.eqns) == 2
    taken_over = trace_with_untraced_calls(lambda x: evaluate_without_tracing(opened, [x]), [V])
    again = jaxpr.trace_flat(lambda x: jaxpr.run_equations(opened.jaxpr, opened.consts, [x]), [V])
    assert str(taken_over) == str(again)


def test_operands_of_other_avals_are_traced_again():
    closed = trace(lambda x: [-x], S)
    taken_over = trace_with_untraced_calls(
        lambda x: evaluate_without_tracing(closed, [x.astype(jnp.float16)]), [S]
    )
    assert [aval.dtype.name for aval in taken_over.out_avals] == ["float16"]


def test_constants_come_in_the_order_of_their_readers():
    closed = trace(stage, V)
    swapped = jaxpr.ClosedJaxpr(
        closed.jaxpr.replace(constvars=closed.jaxpr.constvars[::-1]), closed.consts[::-1]
    )
    for one in (closed, swapped):
        assert [id(c) for c in with_constants_in_order_of_reading(one).consts] == [
            id(c) for c in with_constants_in_order_of_reading(closed).consts
        ]
