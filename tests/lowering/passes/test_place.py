from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from lowering.ground import OutsideCompilationError
from lowering.ops import enqueue, repeat_with_queues
from lowering.passes import drop_dead, find_used_shards, inline_calls, place
from tests.lowering.samples import (
    Queue,
    S,
    V,
    W,
    X,
    outside,
    placed_text,
    shard,
    trace,
)


def placed(fn, *args, **options):
    return place(drop_dead(inline_calls(trace(fn, *args))), **options)


def two_layers(w, x):
    with shard(0):
        h = jnp.tanh(x @ w)
    with shard(1):
        return (jnp.sin(h @ w) * 2).sum()


def test_two_layers(golden):
    golden(placed_text(placed(two_layers, W, X)))


def test_backward_follows_forward(golden):
    golden(placed_text(placed(jax.grad(two_layers), W, X)))


def test_unmarked_equations_follow(golden):
    def fn(x, y):
        first = jnp.exp(y)  # used on IPU 1 first
        alone = jnp.log(y)  # used by nobody marked: where its argument is read
        with shard(1):
            a = x * first
        b = jnp.sin(a)  # follows its operand
        with shard(0):
            c = jnp.cos(x)
        return b + c, alone, jnp.concatenate([c, a, a]).sum()

    golden(placed_text(placed(fn, V, V)))


def test_the_larger_operand_wins(golden):
    def fn(x, s):
        with shard(0):
            small = s * 2
        with shard(1):
            large = x + 1
        return small * large

    golden(placed_text(placed(fn, V, S)))


def test_backward_of_unmarked_equations_finds_its_twin(golden):
    def fn(x):
        with shard(1):
            h = x * 3
        h = jnp.sin(h)
        with shard(0):
            return jnp.cos(h).sum()

    golden(placed_text(placed(jax.grad(fn), V)))


def test_remat(golden):
    def fn(x):
        @jax.checkpoint
        def layer(y):
            with shard(0):
                h = jnp.sin(y)
            with shard(1):
                return jnp.cos(h)

        return layer(x).sum()

    golden(placed_text(placed(jax.grad(fn), V)))


@jax.custom_vjp
def scaled(x):
    with shard(0):
        return x * 2


def _scaled_forward(x):
    with shard(0):
        return x * 2, x


def _scaled_backward(x, g):
    with shard(1):
        return (g * jnp.abs(x),)


scaled.defvjp(_scaled_forward, _scaled_backward)


def test_custom_vjp(golden):
    golden(placed_text(placed(jax.grad(lambda x: scaled(x).sum()), V)))


def test_scan_is_split(golden):
    def fn(c, x):
        def step(c, row):
            with shard(0):
                h = c * row
            with shard(1):
                return jnp.sin(h), h.sum()

        return lax.scan(step, c, x)

    golden(placed_text(placed(fn, V, X)))


def test_backward_of_scan(golden):
    def fn(c, x):
        def step(c, row):
            with shard(0):
                h = jnp.sin(c * row)
            with shard(1):
                return jnp.tanh(h), None

        return lax.scan(step, c, x)[0].sum()

    golden(placed_text(placed(jax.grad(fn), V, X)))


def test_while_and_cond_are_split(golden):
    def fn(x):
        def body(c):
            with shard(1):
                return c * 2

        def condition(c):
            with shard(0):
                return c.sum() < 9

        y = lax.while_loop(condition, body, x)

        def left():
            with shard(0):
                return jnp.sin(y)

        def right():
            with shard(1):
                return jnp.cos(y)

        return lax.cond(y[0] > 0, left, right)

    golden(placed_text(placed(fn, V)))


def test_a_loop_on_one_ipu_is_one_equation(golden):
    def fn(x):
        def step(c, _):
            with shard(1):
                return c * 2, None

        return lax.scan(step, x, None, length=3)[0] + 1

    golden(placed_text(placed(fn, V)))


def test_loops_with_queues_are_split(golden):
    queue = Queue("q")

    def fn(x):
        def body(c):
            enqueue(queue, [c], None)
            return [c * 2]

        aval = jax.typeof(jnp.zeros(3, jnp.float32))
        return repeat_with_queues(trace(body, aval), [], [x], 3, None)

    golden(placed_text(placed(fn, V)))


def test_loops_carry_what_stays_where_inner_loops_read_it():
    queue = Queue("q")
    aval = jax.typeof(jnp.zeros(3, jnp.float32))

    def inner(fixed, c):
        with shard(1):
            y = c * fixed
        enqueue(queue, [y], None)
        return [fixed, y]

    def outer(fixed, c):
        repeat_with_queues(trace(inner, aval, aval), [], [fixed, c], 2, None)
        with shard(0):
            return [fixed, jnp.sin(c)]

    def fn(fixed, c):
        return repeat_with_queues(trace(outer, aval, aval), [], [fixed, c], 3, None)

    loop = placed(fn, V, V)
    assert loop.outputs == (1, 0)


def test_host_operations(golden):
    def fn(x):
        with shard(1):
            y = x * 2
        with outside():
            z = jnp.cumsum(y)
        return z + 1, y + z

    golden(placed_text(placed(fn, V)))


def test_shards_used_looks_everywhere():
    def fn(x):
        with shard(2):
            y = jax.jit(lambda a: a + 1)(x)

        def body(c):
            with shard(5):
                return c * 2

        return lax.while_loop(lambda c: c.sum() < 3, body, y)

    assert find_used_shards(trace(fn, V)) == {2, 5}
    assert find_used_shards(trace(jnp.sin, V)) == frozenset()


@pytest.mark.fact("compile.outside_loop")
@pytest.mark.parametrize("kind", ["scan", "while", "cond"])
def test_rejects_host_operations_in_control_flow(kind):
    def inside(c):
        with outside("save"):
            return c + 1

    programs = {
        "scan": lambda x: lax.scan(lambda c, _: (inside(c), None), x, None, length=2)[0],
        "while": lambda x: lax.while_loop(lambda c: c < 3, inside, x),
        "cond": lambda x: lax.cond(x > 0, inside, jnp.sin, x),
    }
    with pytest.raises(OutsideCompilationError, match=f"'save'.* inside `{kind}`") as error:
        placed(programs[kind], S)
    assert __file__ in error.value.where
    assert "move the scope out" in error.value.fix
