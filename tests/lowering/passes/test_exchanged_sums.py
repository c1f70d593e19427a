"""Sums over two replicas as exchanges: which are rewritten, and that the numbers stay."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering import exchange_sums_of_two_replicas, lower
from lowering.ground import Options
from lowering.jaxprs import function_of_jaxpr, walk_equations
from lowering.ops import REPLICAS, cross_replica_sum
from tests.lowering.samples import kernels

LARGE, SMALL = (128, 128), (127, 128)  # of float32: 64 KiB, and less


def summed(x):
    return cross_replica_sum(x) * 2


def lowered(function, shape, dtype=np.float32, replicas=2):
    struct = jax.ShapeDtypeStruct(shape, dtype)
    return lower(jax.make_jaxpr(function)(struct), Options(num_ipus=replicas, replicas=replicas))


def names(program):
    eqns = [eqn for node in kernels(program) for eqn in walk_equations(node.kernel.jaxpr)]
    return [eqn.primitive.name for eqn in eqns if eqn.primitive.name in ("psum", "ppermute")]


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
def test_an_exchange_gives_both_replicas_the_sum(dtype):
    shape = (256, 128)
    program = exchange_sums_of_two_replicas(lowered(summed, shape, dtype))
    assert names(program) == ["ppermute"]
    (kernel,) = kernels(program)
    values = np.random.default_rng(0).normal(size=(2, *shape)).astype(dtype)
    run = jax.vmap(function_of_jaxpr(kernel.kernel.jaxpr), axis_name=REPLICAS)
    (results,) = run(values)
    expected = (values[0] + values[1]) * values.dtype.type(2)
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_sums_in_loops_are_exchanges_too():
    def looped(x):
        return lax.fori_loop(0, 3, lambda _, carried: summed(carried) / 4, x)

    assert set(names(exchange_sums_of_two_replicas(lowered(looped, LARGE)))) == {"ppermute"}


@pytest.mark.parametrize(
    ("shape", "dtype", "replicas"),
    [(SMALL, np.float32, 2), (LARGE, np.int32, 2), (LARGE, np.float32, 4)],
    ids=["small", "integers", "of four replicas"],
)
def test_other_sums_stay(shape, dtype, replicas):
    def doubled(x):
        return cross_replica_sum(x) * jnp.ones((), dtype)

    program = lowered(doubled, shape, dtype, replicas)
    assert names(exchange_sums_of_two_replicas(program)) == names(program) == ["psum"]
