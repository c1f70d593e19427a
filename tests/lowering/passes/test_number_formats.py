from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering import marks
from lowering.ground import Options
from lowering.jaxprs import jaxpr
from lowering.passes import number_formats
from tests.lowering.samples import jaxpr_text, trace

LIMITS = Options(float16_limits=True)
H = np.full(3, 300, np.float16)
F = np.full(3, 300, np.float32)


def run(closed, *args):
    return jaxpr.run_equations(closed.jaxpr, closed.consts, [jnp.asarray(a) for a in args])


@pytest.mark.parametrize(
    ("fn", "x", "options"),
    [
        (lambda x: x * x + 1, H, Options()),
        (lambda x: x * x + 1, F, LIMITS),
        (lambda x: x[::-1].reshape(3, 1), H, LIMITS),
        (lambda x: lax.scan(lambda c, e: (c, jnp.maximum(e, 1)), None, x)[1], H, LIMITS),
        (lambda x: x.astype(jnp.float32) * 2, H, LIMITS),
        (lambda x: jax.jit(jnp.square)(x.astype(jnp.bfloat16)), F, LIMITS),
    ],
)
def test_what_need_not_change_does_not(fn, x, options):
    closed = trace(fn, x)
    assert number_formats(closed, options, 1) is closed


def test_bodies_that_are_shared_stay_shared():
    square = jax.jit(lambda x: x * x)
    closed = number_formats(trace(lambda x: square(x) + square(x), H), LIMITS, 1)
    calls = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "jit"]
    assert calls[0].params["jaxpr"].jaxpr is calls[1].params["jaxpr"].jaxpr
    np.testing.assert_array_equal(run(closed, H)[0], np.full(3, 65504, np.float16))


def test_a_shared_body_obeys_the_scope_of_each_call():
    cast = jax.jit(lambda x: x.astype(jnp.float16))

    def fn(x):
        with jax.named_scope(marks.write_mark(marks.ATTRIBUTE, marks.STOCHASTIC_ROUNDING, "True")):
            one = cast(x)
        return one, cast(x)

    text = str(number_formats(trace(fn, F), Options(), 1))
    assert text.count("ipu_draw") == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: lax.while_loop(lambda c: c[0] < 1e4, lambda c: c * c, x),
        lambda x: lax.switch(1, [lambda x: x, lambda x: x * x], x),
        lambda x: jax.checkpoint(lambda x: x * x)(x),
        lambda x: jnp.cumsum(jnp.tile(x, 100))[-3:],
        lambda x: jnp.cumprod(x)[1:],
        lambda x: jnp.zeros(3, x.dtype).at[jnp.zeros(900, int)].add(jnp.tile(x, 300))[:1],
        lambda x: jnp.einsum("i,j->ij", x, x),
        lambda x: lax.reduce_window(jnp.tile(x, 100), 0.0, lax.add, (300,), (1,), "VALID"),
    ],
)
def test_overflows_end_at_the_largest_number(fn):
    (out,) = run(number_formats(trace(fn, H), LIMITS, 1), H)
    assert out.dtype == np.float16
    np.testing.assert_array_equal(out, np.full(out.shape, 65504, np.float16))


def test_operations_stay_where_they_were_placed():
    def fn(x):
        with jax.named_scope(marks.write_mark(marks.SHARD, "2")):
            return x * x

    closed = number_formats(trace(fn, H), LIMITS, 1)
    assert {marks.read_marks(jaxpr.name_stack(eqn)).shard for eqn in closed.jaxpr.eqns} == {2}
    assert all(__file__ in jaxpr.user_line(eqn) for eqn in closed.jaxpr.eqns)


def test_the_text(golden):
    golden(jaxpr_text(number_formats(trace(lambda x: x * x + 1, H), LIMITS, 1)))
