from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering import marks
from lowering.passes.call_once import call_once
from tests.lowering.samples import V, jaxpr_text, trace


def noted(x):
    jax.debug.callback(lambda v: None, x)
    return x + 1


def test_callbacks_at_any_depth(golden):
    def fn(x):
        x = jax.jit(noted)(x)
        x = lax.scan(lambda c, _: (noted(c), None), x, None, length=2)[0]
        x = lax.cond(x[0] > 0, noted, jnp.sin, x)
        return lax.while_loop(lambda c: c[0] < 9, noted, x)

    golden(jaxpr_text(call_once(trace(fn, V), 2)))


def test_one_replica_calls_as_it_is_written():
    closed = trace(noted, V)
    assert call_once(closed, 1) is closed


def marked(x):
    with jax.named_scope(marks.write(marks.EACH)):
        return noted(x)


@pytest.mark.parametrize(
    "fn",
    [
        jnp.sin,
        marked,
        lambda x: jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(V.shape, V.dtype), x),
        lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    ],
)
def test_what_is_every_replicas_own_is_left_alone(fn):
    closed = trace(fn, V)
    assert call_once(closed, 4) is closed
