from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from lowering import jaxpr, structure


@pytest.mark.parametrize(
    ("fn", "may"),
    [
        (lambda x: lax.psum(x, "r"), False),
        (lambda x: lax.cond(x > 0, lambda: lax.psum(x, "r"), lambda: x), True),
        (lambda x: lax.while_loop(lambda c: c < 9, lambda c: c + lax.psum(c, "r"), x), True),
        (lambda x: lax.cond(x > 0, lambda: x + lax.axis_index("r"), lambda: x), False),
        (lambda x: lax.fori_loop(0, 3, lambda _, c: lax.psum(c, "r"), x), False),
        (lambda x: lax.cond(x > 0, lambda: jnp.sum(jnp.ones(3) * x), lambda: x), False),
    ],
)
def test_replicas_may_part_ways_under_conditions(fn, may):
    aval = jax.typeof(jnp.float32(0))
    closed = jaxpr.trace_flat(lambda x: [fn(x)], [aval], ("r", 2))
    assert structure.may_part_ways(closed.jaxpr, "r") == may
