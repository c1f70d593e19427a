"""What composed functions leave for backward passes outside pipelines: as single operations do."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import ipujax as ipu
from lowering import Options, lower
from lowering.jaxprs import function_of_jaxpr, inline_jitted_calls, size_in_bytes, walk_equations
from lowering.keeping import peaks_of_live_bytes
from lowering.machine import model
from lowering.passes import drop_dead, recompute_cheap
from tests.ipujax.reporting import configured, struct
from tests.lowering.samples import jaxpr_text, trace

ROWS, WIDTH = 8192, 256  # an array of them takes eight MiB
SIZES = [struct(ROWS, WIDTH), struct(WIDTH, WIDTH), struct(WIDTH, WIDTH)]


def keep_result(function):
    """The function with the gradient of its result, as Popnn's softmax has it."""
    lean = jax.custom_vjp(lambda x: function(x))
    lean.defvjp(
        lambda x: (function(x),) * 2,
        lambda y, g: (y * (g - (y * g).sum(-1, keepdims=True)),),
    )
    return lean


def keep_input(function):
    """The function with a gradient that reads its input alone, as Popnn's gelu has it."""
    lean = jax.custom_vjp(lambda x: function(x))
    lean.defvjp(lambda x: (function(x), x), lambda x, g: jax.vjp(function, x)[1](g))
    return lean


def gradient_through(activation):
    def loss(x, w, v):
        y = activation(x @ w) @ v
        return (jnp.sin(y @ w) ** 2).mean()

    return jax.grad(loss, (0, 1, 2))


def traced(function, *avals):
    return drop_dead(trace(function, *avals))


def recompute(closed):
    return recompute_cheap(closed, everywhere=False)


def waiting_bytes(closed):
    """The bytes of rows that the equations of the backward pass read of the forward pass."""
    backward = ["transpose(" in str(eqn.source_info.name_stack) for eqn in closed.jaxpr.eqns]
    start = backward.index(True)
    made = {var for eqn in closed.jaxpr.eqns[:start] for var in eqn.outvars}
    read = {
        var
        for eqn in closed.jaxpr.eqns[start:]
        for var in eqn.invars
        if not hasattr(var, "val") and var in made
    }
    return sum(size_in_bytes(var.aval) for var in read)


def peak(closed):
    inner = closed.jaxpr
    return peaks_of_live_bytes(inner.eqns, [*inner.invars, *inner.outvars], lambda eqn: False)[0]


def count(closed):
    return Counter(eqn.primitive.name for eqn in walk_equations(closed.jaxpr))


def test_text(golden):
    golden(jaxpr_text(recompute(traced(gradient_through(jax.nn.gelu), *SIZES))))


def new_gelu(x):
    return 0.5 * x * (1 + jnp.tanh(0.79788456 * (x + 0.044715 * x**3)))


class GELU:
    def __call__(self, x):
        return new_gelu(x)


ROW = size_in_bytes(SIZES[0])


@pytest.mark.parametrize(
    ("activation", "arrays"),
    [
        (jax.nn.softmax, 1),
        (jax.nn.gelu, 2),
        (lambda x: jax.nn.gelu(x, approximate=False), 2),
        (jax.nn.silu, 2),
        (jax.nn.softplus, 2),
        (GELU(), 2),
        (lambda x: jax.nn.softmax(jax.nn.gelu(x)), 1),
    ],
)
def test_few_arrays_wait(activation, arrays):
    found = recompute(traced(gradient_through(activation), *SIZES))
    rest = waiting_bytes(found) - arrays * ROW - 3 * ROW  # before, in and after the sine
    assert 0 <= rest < ROW / 16


@pytest.mark.parametrize("activation", [new_gelu, jnp.tanh, jnp.sin, jax.nn.relu])
def test_others_stay(activation):
    closed = traced(gradient_through(activation), *SIZES)
    assert recompute(closed) is closed


def test_small_programs_stay():
    sizes = [struct(64, 64)] * 3
    closed = traced(gradient_through(jax.nn.gelu), *sizes)
    assert recompute(closed) is closed
    assert recompute_cheap(closed, everywhere=True) is not closed


def test_pipelines_stay():
    def loss(weights, x):
        return (jax.nn.gelu(jax.nn.gelu(x @ weights[0]) @ weights[1]) ** 2).mean()

    step = ipu.pipelining_ops.value_and_grad(loss, micro_batches=4, stages=2)
    closed = traced(step, SIZES[1:], SIZES[0])
    assert recompute(closed) is closed


def test_casts_are_made_again():
    def loss(x, weights):
        for w in weights:
            x = jnp.sin(x @ w.astype(jnp.float16))
        return (x.astype(jnp.float32) ** 2).mean()

    weights = [struct(2048, 2048)] * 3
    closed = traced(jax.grad(loss), struct(8, 2048, dtype=jnp.float16), weights)
    found = recompute(closed)
    assert count(found)["convert_element_type"] - count(closed)["convert_element_type"] == 3
    assert peak(closed) - peak(found) >= size_in_bytes(struct(2048, 2048, dtype=jnp.float16))


@pytest.mark.parametrize(("reader", "divisions"), [(0, 1), (1, 0)])
def test_nothing_is_sent_to_another_ipu_twice(reader, divisions):
    def loss(x, w, v):
        with ipu.scopes.ipu_shard(0):
            y = jax.nn.softmax(x @ w)
        with ipu.scopes.ipu_shard(reader):
            return (jnp.sin(jnp.sin(y @ v) @ w) ** 2).mean()

    closed = traced(jax.grad(loss, (0, 1, 2)), *SIZES)
    assert count(recompute(closed))["div"] - count(closed)["div"] == divisions


def attention(softmax, gelu):
    def loss(layers, x):
        for w, v, up, down in layers:
            scores = softmax((x @ w) @ x.swapaxes(-1, -2))
            x = x + scores @ x @ v
            x = x + gelu(x @ up) @ down
        return (x**2).mean()

    def step(layers, x):
        value, gradients = jax.value_and_grad(loss)(layers, x)
        return jax.tree.map(lambda w, g: w - 0.1 * g, layers, gradients), value

    return step


def largest_tile(closed):
    return model(lower(closed, Options())).memory.tile_peak_bytes.max()


def largest_tile_without_pass(closed):
    with mock.patch("lowering.compiler.recompute_cheap", lambda closed, **_: closed):
        return largest_tile(closed)


LAYERS = [[struct(64, 64), struct(64, 64), struct(64, 256), struct(256, 64)]] * 3
SEQUENCES = struct(16, 256, 64)


def test_a_transformer_needs_what_lean_gradients_need():
    composed = attention(jax.nn.softmax, jax.nn.gelu)
    lean = attention(keep_result(jax.nn.softmax), keep_input(jax.nn.gelu))
    closed, wanted = (trace(step, LAYERS, SEQUENCES) for step in (composed, lean))
    found = largest_tile(closed)
    assert found == pytest.approx(largest_tile_without_pass(wanted), rel=0.01)
    assert found < 0.8 * largest_tile_without_pass(closed)


def in_loop(layers, x):
    """The same layers, stacked, in a `lax.scan`."""

    def loss(stacked, x):
        def layer(x, weights):
            return x + jax.nn.softmax(jax.nn.gelu(x @ weights[0]) @ weights[1]), None

        return (lax.scan(layer, x, stacked)[0] ** 2).mean()

    return jax.grad(loss)(layers, x)


STACKED = (struct(6, 128, 512), struct(6, 512, 128))


def test_scans_stack_less():
    closed = traced(in_loop, STACKED, struct(512, 128))
    found = recompute(closed)
    assert peak(found) < 0.7 * peak(closed)
    for name in ("dot_general", "reduce_sum", "reduce_max"):
        assert count(found)[name] == count(closed)[name]


def operands(avals):
    rng = np.random.default_rng(5)
    return jax.tree.map(lambda a: rng.normal(size=a.shape).astype(a.dtype) / 8, avals)


@pytest.mark.parametrize(
    ("function", "avals"),
    [
        (gradient_through(lambda x: jax.nn.softmax(jax.nn.gelu(x))), SIZES),
        (gradient_through(jax.nn.silu), SIZES),
        (attention(jax.nn.softmax, jax.nn.gelu), (LAYERS[:1], SEQUENCES)),
        (in_loop, (STACKED, struct(512, 128))),
    ],
)
def test_numbers_stay(function, avals):
    closed, given_values = traced(function, *avals), operands(avals)
    found = recompute(closed)
    assert found is not closed
    flat = jax.tree.leaves(given_values)
    before, after = (jax.jit(function_of_jaxpr(each))(*flat) for each in (closed, found))
    for theirs, ours in zip(before, after, strict=True):
        np.testing.assert_array_equal(theirs, ours)
    for engine in ("replay", "fused"):
        configured(1)
        results = jax.tree.leaves(ipu.compile(function, engine=engine)(*given_values))
        for theirs, ours in zip(before, results, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


ACTIVATIONS = [
    jax.nn.gelu, jax.nn.softmax, jax.nn.silu, jax.nn.elu, jax.nn.relu, jnp.tanh, jnp.sin, new_gelu,
]  # fmt: skip


@st.composite
def gradients(draw):
    """The derivative of layers with all kinds of activations, traced."""
    layers = draw(
        st.lists(st.tuples(st.sampled_from(ACTIVATIONS), st.booleans()), min_size=1, max_size=5)
    )
    dtype = draw(st.sampled_from([jnp.float32, jnp.float16]))

    def loss(weights, x):
        for (activation, adds), w in zip(layers, weights, strict=True):
            y = activation((x @ w).astype(jnp.float32)).astype(dtype)
            x = x + y if adds else y
        return (x.astype(jnp.float32) ** 2).mean()

    weights = [struct(256, 256, dtype=dtype)] * len(layers)
    rows = struct(8192, 256, dtype=dtype)
    return inline_jitted_calls(traced(jax.grad(loss), weights, rows))


@given(gradients())
@settings(deadline=None)
def test_never_more_waits(closed):
    found = recompute(closed)
    assert peak(found) <= peak(closed)
    assert waiting_bytes(found) <= waiting_bytes(closed)
    for name in ("dot_general", "reduce_sum", "reduce_max"):
        assert count(found)[name] == count(closed)[name]


def largest_data(closed):
    """The most bytes that a tile holds beside its code."""
    memory = model(lower(closed, Options())).memory
    code = ("vertex_code", "vertex_state", "control_code", "exchange_code")
    return (memory.tile_peak_bytes - sum(memory.tile_categories[each] for each in code)).max()


@given(gradients())
@settings(deadline=None, max_examples=6)
def test_the_model_never_needs_more_for_data(closed):
    found = largest_data(closed)
    with mock.patch("lowering.compiler.recompute_cheap", lambda closed, **_: closed):
        assert found <= largest_data(closed)
