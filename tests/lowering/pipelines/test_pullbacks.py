"""Stages that share the trace of their pullbacks, each with its own lines and scopes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from lowering.jaxprs import (
    derivative_key,
    equation_sources,
    insert_sources,
    jaxpr,
    name_stack,
    user_frames_key,
    walk_equations,
)
from lowering.pipelines import PullbackTracer, pullbacks
from tests.lowering.samples import V, trace


def first_stage(x):
    with jax.named_scope("first"):
        return jnp.tanh(x) * 2


def second_stage(x):
    with jax.named_scope("second"), jax.named_scope("inner"):
        x = jnp.tanh(x)
    return x * 2


@jax.custom_jvp
def ruled(x):
    return jnp.sin(x)


ruled.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), tangents[0] * 3))


@jax.jit
def jitted(x):
    return ruled(x) + 1


def scanned(x):
    return jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=2)[0]


def trace_shared(stage: Any) -> Any:
    return PullbackTracer().trace(stage, [0], [0])


def trace_alone(stage: Any) -> Any:
    """The stage and its pullback as JAX traces them, without numbers and shared equations."""

    def run_stage_and_pullback(x: Any, seed: Any) -> Any:
        def run_stage(x: Any) -> Any:
            results = jaxpr.run_equations(stage.jaxpr, stage.consts, [x])
            return results, results

        _, pullback, results = jax.vjp(run_stage, x, has_aux=True)
        return [*results, *pullback(list(jax.lax.optimization_barrier([seed])))]

    return jaxpr.trace_flat(run_stage_and_pullback, [V, V])


def lines(closed: Any) -> list[Any]:
    """Everything about equations, in bodies too, but for the names of variables."""
    return [
        (eqn.primitive.name, name_stack(eqn), eqn.source_info.traceback)
        for eqn in walk_equations(closed)
    ]


@pytest.fixture
def traces(monkeypatch):
    """Counts the stages that are traced with their pullbacks."""
    counted: list[Any] = []
    original = PullbackTracer._trace_with_pullback

    def count(self: Any, stage: Any, *rest: Any) -> Any:
        counted.append(stage)
        return original(self, stage, *rest)

    monkeypatch.setattr(PullbackTracer, "_trace_with_pullback", count)
    return counted


def repeated(x):
    for _ in range(3):
        x = jnp.tanh(x * 2 + 1) ** 3 / jnp.where(x > 0, x, 2.0)
    return x


@pytest.mark.parametrize("function", [first_stage, second_stage, jitted, scanned, repeated])
def test_a_shared_trace_has_the_lines_and_scopes_of_a_trace_of_its_own(function):
    stage = trace(function, V)
    shared, alone = [trace_pullback(stage) for trace_pullback in (trace_shared, trace_alone)]
    assert str(shared) == str(alone)
    assert [line[:2] for line in lines(shared)] == [line[:2] for line in lines(alone)]
    stage_lines = set(map(jaxpr.user_line, stage.jaxpr.eqns))
    pairs = zip(shared.jaxpr.eqns, alone.jaxpr.eqns, strict=True)
    for one, other in pairs:
        if jaxpr.user_line(other) in stage_lines:
            assert user_frames_key(one) == user_frames_key(other)


def test_stages_of_one_structure_are_traced_once(traces):
    tracer, stages = PullbackTracer(), [trace(f, V) for f in (first_stage, second_stage)]
    joints = [tracer.trace(stage, [0], [0]) for stage in stages]
    assert len(traces) == 1
    stacks = ["\n".join(map(name_stack, joint.jaxpr.eqns)) for joint in joints]
    assert "first" in stacks[0]
    assert "second" not in stacks[0]
    assert "jvp(second)/inner" in stacks[1]
    assert "first" not in stacks[1]
    for joint, stage in zip(joints, stages, strict=True):
        own_lines = set(map(jaxpr.user_line, stage.jaxpr.eqns))
        assert own_lines <= set(map(jaxpr.user_line, joint.jaxpr.eqns))


@pytest.mark.parametrize(
    ("function", "shared"), [(ruled, False), (jitted, True), (scanned, True), (first_stage, True)]
)
def test_only_equal_derivative_rules_are_shared(traces, function, shared):
    tracer = PullbackTracer()
    for _ in range(2):
        tracer.trace(jax.make_jaxpr(lambda x: function(x))(V), [0], [0])
    assert len(traces) == (1 if shared else 2)


def test_equations_that_compute_the_same_are_derived_once(monkeypatch):
    derived: list[Any] = []
    original = jaxpr.ad.primitive_jvps[jax.lax.tanh_p]

    def derive(*args: Any, **params: Any) -> Any:
        derived.append(args)
        return original(*args, **params)

    monkeypatch.setitem(jaxpr.ad.primitive_jvps, jax.lax.tanh_p, derive)
    trace_shared(trace(repeated, V))
    assert len(derived) == 1


def test_other_gradients_need_another_trace(traces):
    tracer, stage = PullbackTracer(), trace(lambda x, y: x * y, V, V)
    for gradients in ([0], [1], [0, 1], [0]):
        tracer.trace(stage, gradients, [0])
    assert len(traces) == 3


def test_sources_that_bodies_hide_are_not_guessed(traces, monkeypatch):
    monkeypatch.setattr(pullbacks, "has_numbers_in_bodies", lambda closed: True)
    tracer, stage = PullbackTracer(), trace(first_stage, V)
    joints = [tracer.trace(stage, [0], [0]) for _ in range(2)]
    assert len(traces) == 3  # one in vain
    assert all("first" in name_stack(joint.jaxpr.eqns[0]) for joint in joints)


def test_numbers_in_bodies_are_found():
    numbered = equation_sources.number_equations(trace(jnp.sin, V))
    evaluate = jax.jit(lambda x: jaxpr.run_equations(numbered.jaxpr, (), [x]))
    assert equation_sources.has_numbers_in_bodies(trace(evaluate, V))
    assert not equation_sources.has_numbers_in_bodies(numbered)


def test_equations_of_other_origin_keep_their_sources():
    closed = trace(first_stage, V)
    assert lines(insert_sources(closed, closed.jaxpr.eqns, closed.jaxpr.eqns)) == lines(closed)


def test_lines_in_bodies_make_other_keys():
    def key(body):
        return derivative_key(trace(lambda x: jax.lax.fori_loop(0, 2, body, x), V))

    here, there = [
        key(lambda i, x: jnp.sin(x)),
        key(lambda i, x: jnp.sin(x)),
    ]
    assert here != there
