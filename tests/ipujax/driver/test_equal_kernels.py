"""Kernels of two IPUs that differ in one thing only: both engines give `jax.jit`'s numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.compute_on import compute_on
from jax.experimental.xla_metadata import set_xla_metadata

import ipujax as ipu
from tests.numbers import same, use_ipus

Function = Callable[[Any], Any]
X = np.array([0.5, -0.0, 3.0], np.float32)


def within(context: Callable[[], Any], fn: Function) -> Function:
    def function(x: Any) -> Any:
        with context():
            return fn(x)

    return function


def bits(x: Any) -> Any:
    return jax.random.uniform(jax.random.key(7), (5,)) + x[0]


def bits_of_steps(x: Any) -> Any:
    def step(carry: Any, number: Any) -> Any:
        return carry + jax.random.uniform(jax.random.key(number), (5,)), carry[0]

    return lax.scan(step, jnp.zeros(5) + x[0], jnp.arange(3))


def bits_if(x: Any) -> Any:
    return lax.cond(x[0] > 0, bits, lambda x: jnp.zeros(5) + x[0], x)


def on_two_ipus(first: Function, second: Function) -> Function:
    def function(x: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            a = first(x)
        with ipu.scopes.ipu_shard(1):
            b = second(x)
        return a, b

    return function


def split(first: Function, second: Function) -> Function:
    """The same inside a loop that runs on both IPUs, step by step."""
    both = on_two_ipus(first, second)

    def function(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            return carry + 1, both(carry)

        return lax.scan(step, x, None, length=2)

    return function


def partitioned(fn: Function) -> tuple[Function, Function]:
    ways = (lambda: jax.threefry_partitionable(True)), (lambda: jax.threefry_partitionable(False))
    return within(ways[0], fn), within(ways[1], fn)


def as_unsigned(bits: int) -> Function:
    return lambda x: lax.bitcast_convert_type(x * 0 + np.uint32(bits).view(np.float32), jnp.uint32)


PAIRS: dict[str, tuple[Function, Function]] = {
    "random bits": partitioned(bits),
    "random bits in a loop": partitioned(bits_of_steps),
    "random bits in a branch": partitioned(bits_if),
    "random bits of a jitted function": partitioned(jax.jit(bits)),
    "where to compute": (jnp.sin, within(lambda: compute_on("device_host"), jnp.sin)),
    "metadata": (
        within(lambda: set_xla_metadata(a=1), jnp.sin),
        within(lambda: set_xla_metadata(a=2), jnp.sin),
    ),
    "precision": (
        within(lambda: jax.default_matmul_precision("float32"), lambda x: x @ x),
        within(lambda: jax.default_matmul_precision("bfloat16"), lambda x: x @ x),
    ),
    "the sign of zero": (
        lambda x: 1 / (x * 0 + np.float32(0.0)),
        lambda x: 1 / (x * 0 * -1 + np.float32(-0.0)),
    ),
    "the bits of a nan": (as_unsigned(0x7FC00000), as_unsigned(0x7FC00001)),
    "a weak type": (lambda x: lax.full((), 1.0) + 0, lambda x: 1.0 * jnp.sum(3)),
    "functions of the host": (
        lambda x: jax.pure_callback(lambda v: np.asarray(v) * 2, jax.typeof(x), x),
        lambda x: jax.pure_callback(lambda v: np.asarray(v) * 3, jax.typeof(x), x),
    ),
    "constants": (lambda x: x + np.arange(3.0), lambda x: x + np.arange(3.0) * 2),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("around", [on_two_ipus, split], ids=["plain", "in a loop"])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_each_ipu_computes_its_own(
    pair: tuple[Function, Function], around: Callable[..., Function], engine: str
) -> None:
    use_ipus(2)
    fn = around(*pair)
    same(ipu.compile(fn, engine=engine)(X), jax.jit(fn)(X))


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_each_ipu_calls_its_own_function(engine: str) -> None:
    use_ipus(2)
    seen: list[tuple[str, float]] = []

    def note(name: str) -> Function:
        return lambda x: jax.debug.callback(lambda v: seen.append((name, float(v[0]))), x)

    ipu.compile(on_two_ipus(note("first"), note("second")), engine=engine)(X)
    jax.effects_barrier()
    assert sorted(seen) == [("first", 0.5), ("second", 0.5)]
