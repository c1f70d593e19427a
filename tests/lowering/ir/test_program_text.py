from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from lowering import ir, ops
from lowering.ground import HOST, IpuId
from lowering.ir.program_text import ipu_text, kernel_text
from tests.lowering.samples import N, Queue, V, kernels, lowered, outside, shard, trace

AVAL = jax.typeof(jnp.zeros(3, jnp.float32))


def everything(x, n):
    source, sink = Queue("in"), Queue("out")

    def body(c):
        with shard(1):
            c = c + 1
        ops.enqueue(sink, [c], None, 2)
        return [c]

    def step(c):
        with shard(0):
            a = c[0] + 1
        with shard(1):
            return a, c[1] * 2

    def branch(a):
        with shard(0):
            return jnp.sin(a)

    (y,) = ops.dequeue(source, [AVAL], 4)
    (z,) = ops.repeat_with_queues(trace(body, AVAL), [], [x + y[0]], n, None)
    with outside("save me"):
        z = jnp.log(z)
    i, z = lax.while_loop(lambda c: c[0] < n, step, (0, z))
    z = lax.cond(i > 3, branch, lambda a: step((0, a))[1], z)
    rows = lax.scan(lambda c, e: (step((0, c))[1], step((0, e))[0]), z, z, reverse=True)
    return rows, 3.5


def test_every_node(golden):
    golden(ir.to_text(lowered(everything, V, N)))


def test_equal_programs_have_equal_texts():
    assert ir.to_text(lowered(everything, V, N)) == ir.to_text(lowered(everything, V, N))


def test_origins_are_the_users_lines():
    text = ir.to_text(lowered(everything, V, N), origins=True)
    assert text.count(f"# {__file__}:") >= 8
    assert __file__ not in ir.to_text(lowered(everything, V, N))


def test_a_long_kernel_is_cut_short():
    def fn(x):
        for _ in range(10):
            x = jnp.sin(x)
        return x

    (node,) = kernels(lowered(fn, V))
    assert kernel_text(node.kernel) == f"[{', '.join(['sin'] * 6)} and 4 more]"


def test_replicas_and_names(golden):
    golden(ir.to_text(lowered(lambda x: x + 1, V, ipus=4, name="my program")))


def test_ipu_text():
    assert [ipu_text(IpuId(3)), ipu_text(HOST)] == ["ipu 3", "host"]
