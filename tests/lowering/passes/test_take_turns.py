from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering import jaxpr
from lowering.ops import streams
from lowering.passes.take_turns import take_turns
from tests.lowering.samples import Queue, V, jaxpr_text, trace

unknown_p = jaxpr.Primitive("unknown")
unknown_p.def_abstract_eval(lambda x: x)
jaxpr.mlir.register_lowering(unknown_p, jaxpr.mlir.lower_fun(lambda x: x * 3, False))


def called(x, method=None):
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(lambda a: np.asarray(a) * 2, out, x, vmap_method=method)


def test_unknown_operations_and_callbacks(golden):
    def fn(x):
        y = lax.fori_loop(0, 2, lambda _, c: unknown_p.bind(jnp.sin(c)), x)
        return called(called(y), "expand_dims")

    golden(jaxpr_text(take_turns(trace(fn, V), 2)))


def test_each_replica_has_its_turn():
    closed = take_turns(trace(lambda x: unknown_p.bind(called(x)), V), 4)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    run = jax.vmap(lambda row: jaxpr.run_equations(closed.jaxpr, closed.consts, [row]))
    (got,) = jax.jit(run)(x)
    np.testing.assert_array_equal(got, x * 6)


def test_one_replica_needs_no_turns():
    closed = trace(unknown_p.bind, V)
    assert take_turns(closed, 1) is closed


@pytest.mark.parametrize(
    "fn",
    [
        jnp.sin,
        jnp.linalg.norm,
        jax.grad(lambda x: jax.checkpoint(jnp.sin)(x).sum()),
        lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
        lambda x: streams.enqueue(Queue("q"), [x], None),
        lambda x: jax.debug.print("{}", x),
        lambda x: jax.random.normal(jax.random.key(0), x.shape),
    ],
)
def test_what_vmap_knows_is_left_alone(fn):
    closed = trace(fn, V)
    assert take_turns(closed, 4) is closed
