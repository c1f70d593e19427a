from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from lowering import marks
from lowering.jaxprs import jaxpr
from lowering.ops import enqueue
from lowering.passes import inline_calls
from tests.lowering.samples import Queue, S, V, jaxpr_text, outside, shard, trace


@jax.jit
def marked(x):
    with shard(1):
        return jnp.sin(x) + 1


@jax.jit
def plain(x):
    return jnp.cos(x) * 2


def test_calls_with_marks_are_opened(golden):
    closed = trace(lambda x: plain(marked(plain(x))), V)
    golden(jaxpr_text(inline_calls(closed)))


def test_calls_in_bodies_are_opened(golden):
    def fn(x):
        return lax.scan(lambda c, row: (jax.jit(marked)(c) * row, plain(c)), x[0], x)

    golden(jaxpr_text(inline_calls(trace(fn, V))))


def test_nothing_to_open_changes_nothing():
    closed = trace(lambda x: plain(plain(x)), V)
    assert inline_calls(closed) is closed


def test_marks_outside_of_calls_change_nothing():
    closed = trace(lambda x: lax.scan(lambda c, row: (marked.__wrapped__(c), row), x[0], x), V)
    assert inline_calls(closed) is closed


def test_constants_of_opened_calls_are_kept():
    table = jnp.arange(3.0)

    def fn(x):
        with shard(1):
            return jax.jit(lambda y: y + table)(x)

    opened = inline_calls(trace(lambda x: jax.jit(fn)(x) * 2, V))
    (result,) = jaxpr.run_equations(opened.jaxpr, opened.consts, [jnp.ones(3)])
    assert result.tolist() == [2.0, 4.0, 6.0]


def test_a_body_used_twice_is_opened_with_new_variables():
    opened = inline_calls(trace(lambda x: marked(marked(x)), V))
    written = [var for eqn in opened.jaxpr.eqns for var in eqn.outvars]
    assert len(set(written)) == len(written) == 4


@jax.custom_jvp
def with_tangents(x):
    return marked(x)


with_tangents.defjvps(lambda t, out, x: t * out)


@jax.custom_vjp
def with_cotangents(x):
    return marked(x)


with_cotangents.defvjp(lambda x: (marked(x), x), lambda x, g: (g * x,))


@pytest.mark.parametrize(
    "fn",
    [
        jax.checkpoint(marked),
        jax.grad(lambda x: jax.checkpoint(marked)(x).sum()),
        with_tangents,
        with_cotangents,
        jax.named_call(marked, name="layer"),
    ],
    ids=["remat", "grad of remat", "custom_jvp", "custom_vjp", "named_call"],
)
def test_every_kind_of_call_is_opened(fn):
    opened = inline_calls(trace(fn, V))
    assert all(jaxpr.body_of_call(eqn) is None for eqn in opened.jaxpr.eqns)


def test_host_operations_and_queues_open_calls_too():
    queue = Queue("q")

    @jax.jit
    def sends(x):
        enqueue(queue, [x], None)
        with outside():
            return x + 1

    names = [eqn.primitive.name for eqn in inline_calls(trace(sends, S)).jaxpr.eqns]
    assert names == ["ipu_enqueue", "add"]


def test_outlined_units_stay_closed():
    def fn(x):
        with jax.named_scope(marks.write_mark(marks.UNIT, "block")):
            return marked(x)

    names = [eqn.primitive.name for eqn in inline_calls(trace(fn, V)).jaxpr.eqns]
    assert names == ["jit"]
