"""Functions with float16 in the place of float32, and those that have to stay as they are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ipujax as ipu
from lowering import Options, dtype_name, ir, lower
from lowering.jaxprs import replace_float32_by_float16
from tests.ipujax.reporting import configured, training

X, W = np.ones((8, 4), np.float32), np.ones((4, 4), np.float32)


def layers(w, x):
    for _ in range(2):
        x = jax.nn.gelu(x @ w)
    return jnp.mean(jax.nn.softmax(x) ** 2)


FUNCTIONS = {
    "gradient": jax.grad(layers),
    "remat": jax.grad(jax.checkpoint(layers)),
    "scan": lambda w, x: lax.scan(lambda c, _: (jnp.tanh(c @ w), c.sum()), x, None, length=3),
    "cond": lambda w, x: lax.cond(x.sum() > 0, lambda: x @ w, lambda: x * np.float32(2)),
    "while": lambda w, x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c + w.sum(), x),
    "constants": lambda w, x: x @ w + np.arange(4, dtype=np.float32),
    "integers": lambda w, x: jnp.argmax(x @ w, -1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_of_float32_is_left(name):
    closed = jax.make_jaxpr(FUNCTIONS[name])(W, X)
    halved = replace_float32_by_float16(closed)
    assert halved is not None
    program = lower(halved, Options(num_ipus=1))
    before = lower(closed, Options(num_ipus=1))
    assert not any(dtype_name(aval) == "float32" for aval in program.avals)
    kinds = [
        [type(node).__name__ for node in ir.walk_nodes(each.body)] for each in (before, program)
    ]
    assert kinds[0] == kinds[1]


def test_pipelines_have_halves_in_their_queues_and_state():
    configured(2)
    fn, args = training(2, 4)
    traced = ipu.compile(fn).trace(*args)
    halved = replace_float32_by_float16(traced.jaxpr)
    assert halved is not None
    program = lower(halved, traced.lower().options)
    assert not any(dtype_name(aval) == "float32" for aval in program.avals)


@pytest.mark.parametrize(
    "function",
    [
        lambda w, x: jnp.linalg.inv(w) @ x.T,
        lambda w, x: jnp.fft.fft(x).real @ w,
        lambda w, x: lax.bitcast_convert_type(x, jnp.int32),
        lambda w, x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x) @ w,
    ],
)
def test_what_needs_float32_stays(function):
    assert replace_float32_by_float16(jax.make_jaxpr(function)(W, X)) is None


def test_functions_with_refs_stay():
    def function(x):
        ref = jax.new_ref(x)
        ref[0] = ref[1]
        return ref[...]

    assert replace_float32_by_float16(jax.make_jaxpr(function)(X)) is None
