"""Loops on the device: what they carry, how they nest, and how JAX transforms them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.experimental import io_callback

import ipujax as ipu
from ipujax.errors import LoweringError
from ipujax.loops import repeat, while_loop
from ipujax.scopes import ipu_shard
from tests.ipujax.feeding import (
    LAST,
    compilations,
    configure,
    full,
    incr,
    infeed,
    outfeed,
)

ENGINES = pytest.mark.parametrize("engine", ["fused", "replay"])
f32 = np.float32


class State(NamedTuple):
    weights: dict[str, Any]
    step: Any


def close(got: Any, wanted: Any, rtol: float = 1e-6) -> None:
    """Two pytrees of one structure, with nearly equal numbers."""
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6)


# --- what loops carry -----------------------------------------------------------------------------


@ENGINES
def test_pytrees_are_loop_variables(engine: str) -> None:
    def body(state: State, pair: list[jax.Array], nothing: None) -> Any:
        a, b = pair
        weights = {name: w + a for name, w in state.weights.items()}
        return State(weights, state.step + 1), [b, a + b], nothing

    start = (State({"u": np.ones(3, f32), "v": f32(2)}, np.int32(0)), [f32(1), f32(1)], None)
    run = ipu.compile(lambda *inputs: repeat(6, body, inputs), engine=engine)
    wanted = start
    for _ in range(6):
        wanted = body(*wanted)
    got = run(*start)
    assert isinstance(got, tuple)
    assert isinstance(got[0], State)
    close(got, wanted)


def test_a_single_pytree_needs_no_list() -> None:
    def body(state: State) -> State:
        return State({"u": state.weights["u"] * 2}, state.step + 1)

    start = State({"u": f32(1)}, np.int32(0))
    for inputs in (start, [start]):
        got = ipu.compile(lambda inputs=inputs: repeat(5, body, inputs))()
        assert isinstance(got, State)
        assert got.weights["u"] == 32
        assert got.step == 5


def test_a_single_list_as_the_only_variable() -> None:
    got = ipu.compile(lambda: repeat(3, lambda pair: [pair[1], pair[0]], [[f32(1), f32(2)]]))()
    assert isinstance(got, list)
    assert [float(x) for x in got] == [2, 1]


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: (x,)])
def test_one_variable_may_come_back_bare_or_in_a_list(wrap: Callable[[Any], Any]) -> None:
    assert ipu.compile(lambda: repeat(3, lambda x: wrap(x + 1), [f32(0)]))() == 3


def test_operations_at_the_end_of_a_result_are_dropped() -> None:
    sink = outfeed()

    def body(x: jax.Array, y: jax.Array) -> Any:
        return x + 1, y, sink.enqueue(x)

    got = ipu.compile(lambda: repeat(3, body, [f32(0), f32(7)]))()
    assert [float(x) for x in got] == [3, 7]


@pytest.mark.sampled(2)
@ENGINES
@pytest.mark.parametrize("make", [optax.adam, lambda lr: optax.sgd(lr, momentum=0.9)])
def test_an_optimizer_state_is_a_loop_variable(make: Any, engine: str) -> None:
    optimizer = make(0.1)
    rng = np.random.default_rng(0)
    data = [(rng.normal(size=(8, 3)).astype(f32), rng.normal(size=8).astype(f32)) for _ in range(9)]
    source, sink = infeed(data), outfeed()

    def loss_of(w: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean((x @ w["w"] + w["b"] - y) ** 2)

    def update(w: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(w, x, y)
        changes, state = optimizer.update(grads, state, w)
        return loss, optax.apply_updates(w, changes), state

    def body(w: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
        loss, w, state = update(w, state, x, y)
        sink.enqueue(loss)
        return w, state

    w = {"w": jnp.zeros(3), "b": jnp.zeros(())}
    state = optimizer.init(w)
    run = ipu.compile(lambda w, s: repeat(9, body, [w, s], source), engine=engine)
    got = run(w, state)
    losses = []
    for x, y in data:
        loss, w, state = jax.jit(update)(w, state, x, y)
        losses.append(loss)
    close(got, (w, state), rtol=1e-5)
    np.testing.assert_allclose(sink.dequeue(), losses, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "uint32", "bool"])
def test_dtypes_of_loop_variables(dtype: str) -> None:
    start = jnp.arange(4).astype(dtype)
    got = ipu.compile(lambda x: repeat(3, lambda x: x[::-1], [x]))(start)
    assert got.dtype == start.dtype
    np.testing.assert_array_equal(got, start[::-1])


def test_random_keys_are_loop_variables() -> None:
    def body(key: jax.Array, total: jax.Array) -> Any:
        key, own = jax.random.split(key)
        return key, total + jax.random.normal(own)

    key = jax.random.key(3)
    key_out, total = ipu.compile(lambda k: repeat(4, body, [k, f32(0)]))(key)
    wanted: Any = (key, f32(0))
    for _ in range(4):
        wanted = body(*wanted)
    np.testing.assert_allclose(total, wanted[1], rtol=1e-6)
    assert (jax.random.key_data(key_out) == jax.random.key_data(wanted[0])).all()


# --- how often ------------------------------------------------------------------------------------


@pytest.mark.sampled(8)
@ENGINES
@pytest.mark.parametrize("queues", [False, True])
@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("n", [0, 1, 2, 33])
def test_trip_counts(n: int, static: bool, queues: bool, engine: str) -> None:
    source, sink = infeed(incr(5, ())), outfeed()

    def body(v: jax.Array, *x: jax.Array) -> jax.Array:
        if queues:
            sink.enqueue(v)
        return v + 1 + sum(0 * y for y in x)

    def program(v: jax.Array, n: Any) -> jax.Array:
        return repeat(n, body, [v], source if queues else None)

    if static:
        got = ipu.compile(lambda v: program(v, n), engine=engine)(f32(3))
    else:
        got = ipu.compile(program, engine=engine)(f32(3), np.int32(n))
    assert got == 3 + n
    if queues:
        np.testing.assert_array_equal(sink.dequeue(), 3 + np.arange(n, dtype=f32))


@ENGINES
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32])
def test_a_computed_trip_count(dtype: Any, engine: str) -> None:
    sink = outfeed()

    def body(v: jax.Array) -> jax.Array:
        sink.enqueue(v)
        return v + 1

    run = ipu.compile(lambda n, v: repeat(n * 2 + 1, body, [v]), engine=engine)
    with ipu.events.record() as trace:
        assert [float(run(dtype(n), f32(0))) for n in range(4)] == [1, 3, 5, 7]
    assert compilations(trace) == 1
    assert len(sink.dequeue()) == 16


def test_a_negative_run_time_count_is_none() -> None:
    assert ipu.compile(lambda n, v: repeat(n, lambda v: v + 1, [v]))(np.int32(-3), f32(5)) == 5


@pytest.mark.parametrize("n", [np.int64(3), np.int32(3), np.array(3), jnp.int32(3)])
def test_static_counts_of_other_types(n: Any) -> None:
    sink = outfeed()

    def body(v: jax.Array) -> jax.Array:
        sink.enqueue(v)
        return v * v

    loss = jax.grad(lambda v: repeat(n, body, [v]))
    assert ipu.compile(loss)(f32(1)) == 8


# --- nesting --------------------------------------------------------------------------------------


@ENGINES
@pytest.mark.parametrize("shards", [1, 2])
def test_nested_loops_with_infeeds_of_their_own(shards: int, engine: str) -> None:
    configure(shards)
    outer_source, inner_source = infeed(incr(3, ())), infeed(incr(100, ()))
    outer_sink, inner_sink = outfeed(), outfeed()

    def inner(v: jax.Array, y: jax.Array) -> jax.Array:
        with ipu_shard(shards - 1):
            inner_sink.enqueue(v + y)
            return v + y

    def outer(v: jax.Array, x: jax.Array) -> jax.Array:
        with ipu_shard(0):
            v = v + 100 * x
        v = repeat(4, inner, [v], inner_source)
        outer_sink.enqueue(v)
        return v

    run = ipu.compile(lambda v: repeat(5, outer, [v], outer_source), engine=engine)
    got = run(f32(0))
    value, sums, ends, k = 0.0, [], [], 0
    for i in range(5):
        value += 100 * (i % 3)
        for _ in range(4):
            value += k
            k += 1
            sums.append(value)
        ends.append(value)
    assert got == value
    np.testing.assert_array_equal(inner_sink.dequeue(), sums)
    np.testing.assert_array_equal(outer_sink.dequeue(), ends)


@ENGINES
def test_one_infeed_in_two_loops_of_a_program(engine: str) -> None:
    source = infeed(incr(100, ()))
    first, second = outfeed(), outfeed()

    def into(sink: Any) -> Any:
        def body(v: jax.Array, x: jax.Array) -> jax.Array:
            sink.enqueue(x)
            return v + x

        return body

    @ipu.compile(engine=engine)
    def run(v: jax.Array) -> Any:
        middle = repeat(3, into(first), [v], source)
        return middle, repeat(5, into(second), [middle], source)

    for start in (0, 8):
        middle, end = run(f32(0))
        assert middle == sum(range(start, start + 3))
        assert end == sum(range(start, start + 8))
    np.testing.assert_array_equal(first.dequeue(), [0, 1, 2, 8, 9, 10])
    np.testing.assert_array_equal(second.dequeue(), [3, 4, 5, 6, 7, 11, 12, 13, 14, 15])


@ENGINES
def test_one_infeed_in_a_loop_and_the_loop_inside_it(engine: str) -> None:
    source, sink = infeed(incr(100, ())), outfeed()

    def inner(v: jax.Array, x: jax.Array) -> jax.Array:
        return v + x

    def outer(v: jax.Array, x: jax.Array) -> jax.Array:
        v = repeat(2, inner, [v * x], source)
        sink.enqueue(v)
        return v

    got = ipu.compile(lambda v: repeat(4, outer, [v], source), engine=engine)(f32(0))
    value, k, wanted = 0.0, 0, []
    for _ in range(4):
        value = value * k + (k + 1) + (k + 2)
        k += 3
        wanted.append(value)
    assert got == value
    np.testing.assert_array_equal(sink.dequeue(), wanted)


@ENGINES
def test_a_loop_with_queues_under_a_branch(engine: str) -> None:
    source, sink = infeed(incr(100, ())), outfeed()

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        sink.enqueue(x)
        return v + x

    def program(v: jax.Array, flag: jax.Array) -> jax.Array:
        return jax.lax.cond(flag > 0, lambda v: repeat(3, body, [v], source), lambda v: v, v)

    run = ipu.compile(program, engine=engine)
    assert [float(run(f32(0), np.int32(flag))) for flag in (0, 1, 0, 1)] == [0, 3, 0, 12]
    np.testing.assert_array_equal(sink.dequeue(), np.arange(6))


@ENGINES
def test_a_while_loop_with_queues(engine: str) -> None:
    source, sink = infeed(incr(100, ())), outfeed()

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        sink.enqueue((x, v))
        return v + x

    run = ipu.compile(lambda v: while_loop(lambda v: v < 20, body, [v], source), engine=engine)
    assert run(f32(0)) == 21  # 0 + 1 + ... + 6
    elements, sums = sink.dequeue()
    np.testing.assert_array_equal(elements, np.arange(7))
    np.testing.assert_array_equal(sums, [0, 0, 1, 3, 6, 10, 15])
    assert run(f32(20)) == 20
    assert run(f32(0)) == 24  # 7 + 8 + 9: elements are taken where they are used
    assert len(sink.dequeue()[0]) == 3


@ENGINES
def test_a_sharded_body_streams(engine: str) -> None:
    configure(2)
    source, sink = infeed(incr(10)), outfeed()

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        with ipu_shard(0):
            y = v + x
        with ipu_shard(1):
            z = y * 0.5
            sink.enqueue(z)
        return z

    got = ipu.compile(lambda v: repeat(50, body, [v], source), engine=engine)(full(1))
    value, sent = 1.0, []
    for k in range(50):
        value = (value + k % 10) * 0.5
        sent.append(value)
    np.testing.assert_allclose(got, full(value), rtol=1e-6)
    np.testing.assert_allclose(sink.dequeue()[:, 0, 0], sent, rtol=1e-6)


# --- transformations ------------------------------------------------------------------------------

DATA = np.random.default_rng(1).normal(size=(7, 3)).astype(f32)


def cell(v: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.tanh(v * x + 0.5)


def reference(v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The loop as a plain scan: its result, and what it sends."""

    def step(v: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        new = cell(v, x)
        return new, new * 2

    return jax.lax.scan(step, v, DATA)


def fed_loop(remat: bool = False) -> tuple[Callable[[jax.Array], jax.Array], Any]:
    """The same loop with queues, and its outfeed."""
    source, sink = infeed(lambda: iter(DATA)), outfeed()

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        new = cell(v, x)
        sink.enqueue(new * 2)
        return new

    body_ = jax.checkpoint(body) if remat else body
    return lambda v: repeat(len(DATA), lambda v, x: body_(v, x), [v], source), sink


START = f32([0.1, -0.2, 0.3])


@pytest.mark.sampled(2)
@ENGINES
@pytest.mark.parametrize("remat", [False, True])
def test_gradients_through_a_loop_with_queues(remat: bool, engine: str) -> None:
    loop, sink = fed_loop(remat)
    got = ipu.compile(jax.value_and_grad(lambda v: loop(v).sum()), engine=engine)(START)
    wanted = jax.value_and_grad(lambda v: reference(v)[0].sum())(START)
    close(got, wanted)
    np.testing.assert_allclose(sink.dequeue(), reference(START)[1], rtol=1e-6)


@pytest.mark.sampled(1)
@ENGINES
def test_a_checkpointed_loop_sends_once(engine: str) -> None:
    sink = outfeed()

    def body(v: jax.Array) -> jax.Array:
        v = jnp.sin(v)
        sink.enqueue(v)
        return v

    loss = jax.checkpoint(lambda v: repeat(4, body, [v]))
    got = ipu.compile(jax.value_and_grad(loss), engine=engine)(f32(1))
    values = [f32(1)]
    for _ in range(4):
        values.append(np.sin(values[-1]))
    np.testing.assert_allclose(got[0], values[-1], rtol=1e-6)
    np.testing.assert_allclose(got[1], np.prod(np.cos(values[:-1])), rtol=1e-6)
    np.testing.assert_allclose(sink.dequeue(), values[1:], rtol=1e-6)


def test_a_checkpointed_loop_reads_once() -> None:
    loop, sink = fed_loop()
    got = ipu.compile(jax.grad(lambda v: jax.checkpoint(loop)(v).sum()))(START)
    wanted = jax.grad(lambda v: reference(v)[0].sum())(START)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sink.dequeue(), reference(START)[1], rtol=1e-6)


@pytest.mark.sampled(2)
@ENGINES
@pytest.mark.parametrize("transform", [jax.jacrev, jax.jacfwd, jax.hessian])
def test_other_derivatives(transform: Any, engine: str) -> None:
    loop, sink = fed_loop()
    got = ipu.compile(transform(lambda v: loop(v).sum()), engine=engine)(START)
    wanted = transform(lambda v: reference(v)[0].sum())(START)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sink.dequeue(), reference(START)[1], rtol=1e-6)


@ENGINES
def test_gradients_of_nested_loops_with_queues(engine: str) -> None:
    outer_source, inner_source, sink = infeed(incr(3, ())), infeed(incr(5, ())), outfeed()

    def inner(v: jax.Array, y: jax.Array) -> jax.Array:
        v = jnp.sin(v + y)
        sink.enqueue(v)
        return v

    def outer(v: jax.Array, x: jax.Array) -> jax.Array:
        return repeat(2, inner, [v * (x + 1)], inner_source)

    def plain(v: jax.Array) -> jax.Array:
        for i in range(4):
            v = v * (i % 3 + 1)
            for j in range(2):
                v = jnp.sin(v + (2 * i + j) % 5)
        return v

    run = ipu.compile(
        jax.value_and_grad(lambda v: repeat(4, outer, [v], outer_source)), engine=engine
    )
    close(run(f32(0.3)), jax.value_and_grad(plain)(f32(0.3)), rtol=1e-5)
    assert sink.dequeue().shape == (8,)


@ENGINES
def test_gradients_of_a_loop_with_a_gradient_inside(engine: str) -> None:
    """A training loop that is itself differentiated, with respect to the learning rate."""
    source, sink = infeed(incr(4, ())), outfeed()

    def train(rate: jax.Array) -> jax.Array:
        def body(w: jax.Array, x: jax.Array) -> jax.Array:
            loss, slope = jax.value_and_grad(lambda w: (w * x - 1) ** 2)(w)
            sink.enqueue(loss)
            return w - rate * slope

        return repeat(5, body, [f32(0)], source)

    def plain(rate: jax.Array) -> jax.Array:
        w = jnp.float32(0)
        for k in range(5):
            w = w - rate * 2 * (k % 4) * (w * (k % 4) - 1)
        return w

    run = ipu.compile(jax.value_and_grad(train), engine=engine)
    close(run(f32(0.05)), jax.value_and_grad(plain)(f32(0.05)), rtol=1e-5)
    assert sink.dequeue().shape == (5,)


@ENGINES
def test_a_vmapped_loop_with_an_infeed(engine: str) -> None:
    source = infeed(lambda: iter(DATA))
    starts = np.stack([START, START * 2])
    run = ipu.compile(jax.vmap(lambda v: repeat(7, cell, [v], source)), engine=engine)
    wanted = jax.vmap(lambda v: reference(v)[0])(starts)
    np.testing.assert_allclose(run(starts), wanted, rtol=1e-6)


def test_a_vmapped_loop_without_queues() -> None:
    run = ipu.compile(jax.vmap(lambda v: repeat(3, lambda v: v * v, [v])))
    np.testing.assert_allclose(run(f32([1, 2])), [1, 256])


def test_a_vmap_inside_the_body() -> None:
    source, sink = infeed(lambda: iter(DATA)), outfeed()

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        v = jax.vmap(cell)(v, x)
        sink.enqueue(v * 2)
        return v

    got = ipu.compile(lambda v: repeat(7, body, [v], source))(START)
    np.testing.assert_allclose(got, reference(START)[0], rtol=1e-6)
    np.testing.assert_allclose(sink.dequeue(), reference(START)[1], rtol=1e-6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("grad", [False, True])
def test_loops_outside_compiled_code(transform: Any, grad: bool) -> None:
    loop, sink = fed_loop()
    wanted: Any = reference(START)[0]
    if grad:
        got = transform(jax.value_and_grad(lambda v: loop(v).sum()))(START)
        close(got, jax.value_and_grad(lambda v: reference(v)[0].sum())(START))
    else:
        np.testing.assert_allclose(transform(loop)(START), wanted, rtol=1e-6)
    jax.effects_barrier()
    np.testing.assert_allclose(sink.dequeue(), reference(START)[1], rtol=1e-6)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_a_run_time_count_outside_compiled_code(transform: Any) -> None:
    source, sink = infeed(incr(10, ())), outfeed(LAST)

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        sink.enqueue(x)
        return v + x

    run = transform(lambda n, v: repeat(n, body, [v], source))
    assert [float(run(np.int32(n), f32(0))) for n in (3, 0, 2)] == [3, 0, 7]
    jax.effects_barrier()
    assert sink.dequeue() == 4


def test_a_compiled_function_inlines_under_transformations() -> None:
    source, sink = infeed(lambda: iter(DATA)), outfeed()

    @ipu.compile
    def inner(v: jax.Array) -> jax.Array:
        def body(v: jax.Array, x: jax.Array) -> jax.Array:
            sink.enqueue(cell(v, x) * 2)
            return cell(v, x)

        return repeat(7, body, [v], source)

    got = ipu.compile(jax.grad(lambda v: inner(v).sum()))(START)
    wanted = jax.grad(lambda v: reference(v)[0].sum())(START)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sink.dequeue(), reference(START)[1], rtol=1e-6)


def test_the_derivative_needs_a_static_count() -> None:
    source = infeed(incr(3, ()))
    loss = jax.grad(lambda v, n: repeat(n, lambda v, x: v * x, [v], source))
    with pytest.raises(LoweringError, match=r"run time.*\n.*\n?.*Python int"):
        ipu.compile(loss)(f32(1), np.int32(3))


@pytest.mark.exhaustive
@settings(max_examples=30)
@given(
    n=st.integers(0, 40),
    width=st.integers(0, 3),
    replicas=st.sampled_from([1, 2, 4]),
    engine=st.sampled_from(["fused", "replay"]),
)
def test_any_loop_is_the_sum_of_its_elements(
    n: int, width: int, replicas: int, engine: str
) -> None:
    configure(replicas)
    rows = np.random.default_rng(n).integers(0, 9, (n * replicas, width)).astype(f32)
    source, sink = infeed(list(rows) or [np.zeros(width, f32)]), outfeed()

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        sink.enqueue(x)
        return v + x

    run = ipu.compile(lambda v: repeat(n, body, [v], source), engine=engine)
    own = rows.reshape(n, replicas, width)
    np.testing.assert_array_equal(run(np.zeros(width, f32)), own[:, 0].sum(0))
    wanted = own[:, 0] if replicas == 1 else own
    got = sink.dequeue()
    if n:
        assert got.shape == wanted.shape
    np.testing.assert_array_equal(got.ravel(), wanted.ravel())


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_a_loop_of_effects_alone_on_the_second_ipu(engine: str) -> None:
    """Nothing is carried or streamed that would say where the loop is."""
    configure(2)
    told: list[int] = []

    def tell(value: np.ndarray) -> np.ndarray:
        told.append(int(value))
        return np.asarray(value)

    def fn(x: jax.Array, rows: jax.Array) -> jax.Array:
        def step(carry: tuple[jax.Array, jax.Array], _: jax.Array) -> Any:
            with ipu_shard(0):
                y = io_callback(tell, jax.ShapeDtypeStruct((), jnp.int32), x, ordered=True)
            with ipu_shard(1):
                z = (y & 3) * 0.5
            return (z, z), z

        def each(row: jax.Array) -> jax.Array:
            with ipu_shard(1):
                return lax.scan(step, (row, row), rows)[1]

        with ipu_shard(1):
            lax.map(each, rows * 2)
        return rows + 1

    rows = jnp.ones(3)
    run = ipu.compile(fn, engine=engine)
    np.testing.assert_array_equal(run(jnp.int32(7), rows), rows + 1)
    jax.effects_barrier()
    assert told == [7] * 9
