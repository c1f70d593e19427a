from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from lowering import ir, ops
from lowering.jaxprs import jaxpr
from lowering.passes import drop_dead
from tests.lowering.samples import Queue, V, jaxpr_text, kernels, lowered, shard, trace


def test_unread_results_go(golden):
    def fn(x):
        jnp.cos(jnp.tan(x))
        ops.enqueue(Queue("q"), [jnp.exp(x)], None)
        jax.debug.print("{}", x * 2)
        return jnp.sin(x)

    golden(jaxpr_text(drop_dead(trace(fn, V))))


def test_live_programs_are_not_touched():
    closed = trace(lambda x: (jnp.sin(x), lax.fori_loop(0, 3, lambda i, c: c * i, x)), V)
    assert jaxpr_text(drop_dead(closed)) == jaxpr_text(closed)


def test_what_has_nothing_dead_stays_the_same_object():
    closed = trace(lambda x: lax.reduce(jnp.sin(x), 0.0, lax.add, (0,)) * x, V)
    assert drop_dead(closed) is closed


def on_condition(function):
    return lambda x: lax.cond(x[0] > 0, function, jnp.cos, x)


@pytest.mark.parametrize("call", [jax.jit, jax.checkpoint, on_condition])
def test_calls_in_calls_with_nothing_dead_stay_the_same_object(call):
    closed = trace(call(lambda x: call(lambda y: jnp.sin(y) * y)(x) + x), V)
    assert drop_dead(closed) is closed


def test_operands_that_no_call_in_a_call_reads_go():
    inner = jax.jit(lambda x, y: x * 2, keep_unused=True)
    outer = jax.jit(lambda x, y: inner(x, y) + x)
    (eqn,) = drop_dead(trace(lambda x, y: outer(x, jnp.sin(y)), V, V)).jaxpr.eqns
    assert len(eqn.invars) == 1
    assert len(eqn.params["jaxpr"].eqns[0].invars) == 1


def test_equations_that_share_a_body_go_on_sharing_it():
    half = jax.jit(lambda x: (jnp.sin(x), jnp.cos(x))[0])
    first, second = drop_dead(trace(lambda x: half(half(x)), V)).jaxpr.eqns
    assert first.params["jaxpr"] is second.params["jaxpr"]
    assert [eqn.primitive.name for eqn in first.params["jaxpr"].jaxpr.eqns] == ["sin"]


def dead_beside(x):
    """On two IPUs: one value that is read, one that is not, and one that the host sees."""
    with shard(0):
        y = jnp.sin(x)
    with shard(1):
        jnp.dot(jnp.tan(y), jnp.ones(3))
        jax.debug.print("{}", jnp.exp(y))
    return y


def scanned(x):
    def step(carry, row):
        y, unread = dead_beside(carry[0]), jnp.tanh(carry[1] + row)
        return (y, unread), (jnp.sinh(y), y)

    (y, _), (_, rows) = lax.scan(step, (x, x), jnp.stack([x, x]))
    return y, rows


def looped(x):
    unread = jnp.cosh(x)

    def step(carry):
        jnp.tanh(carry * unread)
        return dead_beside(carry) + carry + 3

    return lax.while_loop(lambda c: c[0] < 9, step, x)


def repeated(x):
    unread = jnp.cosh(x)

    def step(unread, carry):
        jnp.tanh(carry * unread)
        return [dead_beside(carry)]

    return ops.repeat_with_queues(trace(step, V, V), [unread], [x], 3, None)


def chosen(x):
    def taken(x):
        return dead_beside(x), jnp.tanh(x)

    return lax.cond(x[0] > 0, taken, lambda x: (x, x), x)[0]


def nested(x):
    return lax.scan(lambda c, _: (looped(c), None), x, None, length=2)[0]


def called(x):
    return jax.jit(lambda x: (dead_beside(x), jnp.tanh(x)))(x)[0]


@pytest.mark.parametrize("fn", [scanned, looped, repeated, chosen, nested, called])
def test_dead_code_in_bodies_goes_and_effects_stay(fn):
    closed = trace(fn, V)
    kept = jaxpr_text(drop_dead(closed))
    assert all(word in kept for word in ("sin", "exp", "debug_print"))
    assert not any(word in kept for word in ("tan", "dot_general", "sinh", "cosh"))
    program = lowered(fn, V)
    assert all(ir.values_written(node) or node.kernel.jaxpr.effects for node in kernels(program))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fn", [scanned, looped, chosen, nested, called])
def test_numbers_stay(fn, capfd):
    closed, x = trace(fn, V), jnp.ones(3)
    smaller = drop_dead(closed)
    wanted = jax.jit(fn)(x)
    jax.effects_barrier()
    printed = capfd.readouterr().out
    got = jax.jit(lambda x: jaxpr.run_equations(smaller.jaxpr, smaller.consts, [x]))(x)
    jax.effects_barrier()
    assert capfd.readouterr().out == printed != ""
    for mine, theirs in zip(got, jax.tree.leaves(wanted), strict=True):
        assert mine.tolist() == theirs.tolist()


def test_loop_variables_that_an_error_tells_stay():
    queue = Queue("q")

    def step(x, unread):
        (element,) = ops.dequeue(queue, [jax.typeof(x)])
        return [x + element, unread * 2]

    def fn(x):
        return ops.repeat_with_queues(trace(step, V, V), [], [x, x], 3, jax.tree.structure([0, 0]))[
            0
        ]

    (loop,) = drop_dead(trace(fn, V)).jaxpr.eqns
    assert len(loop.outvars) == 2


def test_results_and_constants_stay():
    table = jnp.arange(3.0)

    def fn(x):
        jnp.dot(table, x)
        return x + table, 3

    closed = drop_dead(trace(fn, V))
    first, second = jaxpr.run_equations(closed.jaxpr, closed.consts, [jnp.ones(3)])
    assert (first.tolist(), int(second)) == ([1.0, 2.0, 3.0], 3)


def test_parameters_that_are_named_tuples_stay():
    closed = trace(lambda x: x.at[jnp.array([0, 2])].add(x[0]), V)
    smaller = drop_dead(closed)
    (got,) = jaxpr.run_equations(smaller.jaxpr, smaller.consts, [jnp.ones(3)])
    assert got.tolist() == [2.0, 1.0, 2.0]
