from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from lowering import fuse, ir, is_one_kernel, ops
from lowering.fusion.emit import evaluate_steps
from tests.lowering.samples import N, Queue, V, X, kernels, lowered, outside, shard, trace

AVAL = jax.typeof(jnp.zeros(3, jnp.float32))


def fused(fn, *args, ipus=2):
    program = fuse(lowered(fn, *args, ipus=ipus), ir.needs_host)
    ir.verify(program)
    return program


def test_shards_and_loops_become_one_kernel(golden):
    def fn(x, y):
        def step(c, row):
            with shard(0):
                h = c * row
            with shard(1):
                return jnp.sin(h), h.sum()

        with shard(1):
            y = y + 1
        return lax.scan(step, y, x)

    program = fused(fn, X, V)
    assert is_one_kernel(program)
    assert program.ipus == 1
    golden(ir.to_text(program))


def test_a_loop_with_queues_is_left_with_one_kernel(golden):
    source, sink = Queue("in"), Queue("out")

    def body(c):
        (x,) = ops.dequeue(source, [AVAL])
        with shard(0):
            h = c * x
        ops.enqueue(sink, [h], None)
        with shard(1):
            return [jnp.sin(h) + x]

    def fn(x):
        (y,) = ops.repeat_with_queues(trace(body, AVAL), [], [x + 1], 5, None)
        return y * 2

    golden(ir.to_text(fused(fn, V)))


def test_host_calls_separate_kernels(golden):
    def fn(x):
        with shard(0):
            y = x * 2
        with outside("save"):
            z = jnp.log(y)
        with shard(1):
            return z + y

    program = fused(fn, V)
    assert not is_one_kernel(program)
    golden(ir.to_text(program))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("n", [-1, 0, 1, 7])
def test_evaluates_to_the_functions_numbers(n):
    def fn(x, y, n):
        def first(a):
            with shard(0):
                return jnp.sin(a), 1.0

        def second(a):
            with shard(1):
                return a * 2, a.sum()

        def body(c):
            with shard(0):
                i = c[0] + 1
            with shard(1):
                return i, c[1] * 1.5

        _, y = lax.while_loop(lambda c: c[0] < n, body, (0, y))
        rows = lax.scan(lambda c, row: (c + row, c), y, x, reverse=True)
        return lax.switch(n, [first, second], y), rows

    program = fused(fn, X, V, N)
    assert is_one_kernel(program)
    args = jnp.ones((2, 3)) * 2, jnp.arange(3.0), jnp.int32(n)
    wanted = jax.tree.leaves(jax.jit(fn)(*args))

    def evaluate(*operands):
        values = {**dict(zip(program.inputs, operands, strict=True)), **dict(program.constants)}
        evaluate_steps(program.body, values)
        return [values[value] for value in program.outputs]

    got = jax.jit(evaluate)(*args)
    assert [g.tolist() for g in got] == [w.tolist() for w in wanted]


def test_programs_without_kernels_are_one():
    program = fused(lambda x: (x, 3), V)
    assert is_one_kernel(program)
    assert not kernels(program)


def test_rejects_to_evaluate_what_needs_the_host():
    program = lowered(lambda: ops.dequeue(Queue("q"), [AVAL]))
    with pytest.raises(TypeError, match="StreamIn needs the host"):
        evaluate_steps(program.body, {})
