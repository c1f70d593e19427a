"""Shards inside whatever JAX has: loops, branches, recomputation, custom derivatives, vmap, grad.

Each function runs fused and kernel by kernel with the numbers of `jax.jit`, and its Program shows
work on the IPUs that the marks name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ipujax as ipu
from ipujax.scopes import ipu_shard
from lowering import ir
from tests.numbers import same, use_ipus

X = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(3, 4)
V = np.array([0.5, -1.5, 2.0], np.float32)


def layered(c: Any, row: Any) -> tuple[Any, Any]:
    with ipu_shard(0):
        h = jnp.tanh(c * row)
    with ipu_shard(1):
        return h + c * 0.5, (h * 2).sum()


def in_scan(x):
    return lax.scan(layered, jnp.ones(4), x)


def in_scan_in_scan(x):
    def outer(c, row):
        with ipu_shard(1):
            row = row + 1
        c, sums = lax.scan(lambda d, e: layered(d, e * row), c, x)
        return c, sums.sum()

    return lax.scan(outer, jnp.ones(4), x)


def in_while(x):
    def condition(c):
        with ipu_shard(1):
            return jnp.abs(c[1]).sum() < 20

    def body(c):
        with ipu_shard(0):
            a = c[0] + 1.0
        with ipu_shard(1):
            return a, c[1] * 1.5 + a

    return lax.while_loop(condition, body, (x[0], x[1]))


def in_branches(x):
    def first(a):
        with ipu_shard(0):
            return jnp.sin(a), a

    def second(a):
        with ipu_shard(1):
            return jnp.cos(a), a * 2

    return lax.map(lambda row: lax.cond(row.sum() > 0, first, second, row), x)


def in_vmapped_branches(x):
    return jax.vmap(lambda row: lax.cond(row.sum() > 0, lambda a: layered(a, a),
                                         lambda a: (a, a.sum()), row))(x)  # fmt: skip


def in_vmapped_while(x):
    def body(c):
        with ipu_shard(0):
            h = c * 0.5
        with ipu_shard(1):
            return h * 0.9

    def condition(c):
        with ipu_shard(1):
            return jnp.abs(c).max() > 0.1

    return jax.vmap(lambda row: lax.while_loop(condition, body, row))(x)


def in_remat(x):
    @jax.checkpoint
    def layer(y):
        with ipu_shard(0):
            h = jnp.sin(y)
        with ipu_shard(1):
            return jnp.tanh(h * y)

    return jax.grad(lambda y: layer(layer(y)).sum())(x)


@jax.custom_vjp
def _scaled(x):
    with ipu_shard(0):
        return x * 2


def _scaled_forward(x):
    with ipu_shard(0):
        y = x * 2
    with ipu_shard(1):
        return y, jnp.abs(x)


def _scaled_backward(size, g):
    with ipu_shard(1):
        return (g * size,)


_scaled.defvjp(_scaled_forward, _scaled_backward)


def in_custom_vjp(x):
    return _scaled(x), jax.grad(lambda y: (_scaled(y) ** 2).sum())(x)


@jax.custom_jvp
def _soft(x):
    with ipu_shard(0):
        return jnp.log1p(jnp.exp(x))


@_soft.defjvp
def _soft_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    with ipu_shard(1):
        return _soft(x), t * jax.nn.sigmoid(x)


def in_custom_jvp(x):
    return jax.value_and_grad(lambda y: _soft(y).sum())(x), jax.jvp(_soft, (x,), (x,))


def in_vmapped_function(x):
    return jax.vmap(layered)(x, x)


def in_grad(x):
    return jax.value_and_grad(lambda y: sum(map(jnp.sum, layered(y[0], y[1]))))(x)


def in_grad_of_scan(x):
    def loss(y):
        final, sums = lax.scan(layered, jnp.ones(4), y)
        return final.sum() + sums.sum()

    return jax.value_and_grad(loss)(x)


def in_grad_of_scan_of_remat(x):
    def loss(y):
        return lax.scan(jax.checkpoint(layered), jnp.ones(4), y)[0].sum()

    return jax.grad(loss)(x)


def in_grad_of_branches(x):
    def loss(y):
        return lax.cond(y.sum() > 0, lambda a: layered(a, a)[0], lambda a: layered(a, a * 2)[0], y)

    return jax.grad(lambda y: loss(y).sum())(x[2])


def in_jit_twice(x):
    inner = jax.jit(layered)
    c, a = inner(x[0], x[1])
    c, b = inner(c, x[2])
    return c, a + b


def in_named_call(x):
    return jax.named_call(layered, name="layer")(x[0], x[1])


def in_hessian(x):
    return jax.hessian(lambda v: sum(map(jnp.sum, layered(v, v))))(x[0])


def in_key_loop(x):
    def step(key, row):
        with ipu_shard(0):
            key, now = jax.random.split(key)
        with ipu_shard(1):
            return key, row + jax.random.normal(now, row.shape)

    return lax.scan(step, jax.random.key(0), x)


def in_repeat(x):
    def body(a, b):
        with ipu_shard(0):
            h = jnp.tanh(a + b)
        with ipu_shard(1):
            return b * 0.5, h

    return ipu.loops.repeat(3, body, [x[0], x[1]])


def in_grad_of_repeat(x):
    def loss(y):
        return ipu.loops.repeat(3, lambda c: layered(c, y[1])[0], [y[0]]).sum()

    return jax.grad(loss)(x)


FUNCTIONS: list[Callable[..., Any]] = [
    fn for name, fn in list(globals().items()) if name.startswith("in_") and callable(fn)
]


@functools.cache
def wanted(fn: Callable[..., Any]) -> Any:
    return jax.jit(fn)(X)


def kernels(program: ir.Program) -> set[int]:
    return {node.ipu for node in ir.walk_nodes(program.body) if isinstance(node, ir.Execute)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_same_numbers_and_both_ipus_work(fn: Callable[..., Any]) -> None:
    use_ipus(2)
    fused = ipu.compile(fn, engine="fused")
    replayed = ipu.compile(fn, engine="replay")
    assert kernels(fused.lower(X).program) == {0, 1}
    same(fused(X), wanted(fn), exact=False)
    same(replayed(X), wanted(fn), exact=False)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_same_numbers_on_one_replica_of_many(fn: Callable[..., Any]) -> None:
    use_ipus(4)
    same(ipu.compile(fn)(X), wanted(fn), exact=False)


def test_marks_mean_nothing_under_vmap_of_jit() -> None:
    same(jax.jit(jax.vmap(layered))(X, X), jax.vmap(jax.jit(layered))(X, X), exact=False)
