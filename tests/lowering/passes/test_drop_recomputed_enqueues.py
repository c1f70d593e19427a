from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from lowering import ops
from lowering.ground import EnqueueError
from lowering.jaxprs import jaxpr
from lowering.passes import drop_recomputed_enqueues, inline_calls
from tests.lowering.samples import Queue, S, jaxpr_text, trace

OUT, IN = Queue("out"), Queue("in")
AVAL = jax.typeof(jnp.float32(0))


def send(x, queue=OUT):
    ops.enqueue(queue, [x], None)
    return x


def take():
    return ops.dequeue(IN, [AVAL])[0]


def checked(fn, *args):
    return drop_recomputed_enqueues(inline_calls(trace(fn, *args)))


def test_recomputed_enqueues_are_dropped(golden):
    def loss(x):
        return jax.checkpoint(lambda y: jnp.sin(send(jnp.sin(y))))(x)

    golden(jaxpr_text(checked(jax.grad(loss), S)))


def test_two_queues_are_two():
    closed = checked(lambda x: (send(x), send(x, Queue("other"))), S)
    assert [eqn.primitive.name for eqn in closed.jaxpr.eqns] == ["ipu_enqueue"] * 2


def test_without_queues_nothing_changes():
    closed = trace(jnp.sin, S)
    assert drop_recomputed_enqueues(closed) is closed


def test_rejects_two_enqueues():
    with pytest.raises(EnqueueError, match="outfeed `out` is enqueued to twice") as error:
        checked(lambda x: (send(x), send(x * 2)), S)
    assert __file__ in error.value.where
    assert __file__ in str(error.value).partition("where")[0]  # the first one too


def test_rejects_two_enqueues_in_branches():
    with pytest.raises(EnqueueError, match="twice"):
        checked(lambda x: lax.cond(x > 0, lambda: send(x), lambda: send(-x)), S)


def test_rejects_one_in_a_loop_and_one_outside():
    def fn(x):
        body = jaxpr.trace_flat(lambda c: [send(c)], [AVAL])
        return send(ops.repeat_with_queues(body, [], [x], 3, None)[0])

    with pytest.raises(EnqueueError, match="twice"):
        checked(fn, S)


def test_elements_are_taken_once_though_used_in_recomputed_code():
    def loss(x):
        return jax.checkpoint(lambda y: jnp.sin(y * take()))(x)

    names = [eqn.primitive.name for eqn in checked(jax.grad(loss), S).jaxpr.eqns]
    assert names.count("ipu_dequeue") == 1


def test_rejects_elements_taken_by_recomputed_code():
    def fn(x):
        with jax.named_scope("rematted_computation"):  # as JAX calls it
            return x * take()

    with pytest.raises(
        EnqueueError, match=r"infeed `in` is read inside `jax\.checkpoint`"
    ) as error:
        checked(fn, S)
    assert __file__ in error.value.where
