"""Collectives under plain JAX: as with one replica."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowering import ops
from lowering.ground import CollectiveError

X = np.arange(3, dtype=np.float32)


@pytest.mark.parametrize("compiled", [False, True])
def test_one_replica_is_alone(compiled):
    def fn(x):
        return (
            ops.cross_replica_sum(x),
            ops.cross_replica_sum(x, 1),
            ops.all_gather(x, 1),
            ops.all_to_all(x[None], 1),
            ops.reduce_scatter(x[None], 1),
            ops.replication_index(),
            ops.replica_count(),
        )

    total, own, gathered, exchanged, part, index, count = (jax.jit(fn) if compiled else fn)(X)
    np.testing.assert_array_equal(total, X)
    np.testing.assert_array_equal(own, X)
    np.testing.assert_array_equal(gathered, X[None])
    np.testing.assert_array_equal(exchanged, X[None])
    np.testing.assert_array_equal(part, X)
    assert (int(index), int(count)) == (0, 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8"])
def test_types_are_kept(dtype):
    x = jnp.ones(2, dtype)
    for value in (
        ops.cross_replica_sum(x),
        ops.all_gather(x, 1),
        ops.all_to_all(x[None], 1),
        ops.reduce_scatter(x[None], 1),
    ):
        assert value.dtype == dtype
    assert ops.replication_index().dtype == ops.replica_count().dtype == jnp.int32


@pytest.mark.exhaustive
def test_derivatives():
    def fn(x):
        exchanged = ops.all_to_all(0.5 * x[None], 1)
        gathered = ops.all_gather(0.5 * ops.reduce_scatter(x[None], 1), 1)
        return ops.cross_replica_sum(x * x).sum() + (gathered + exchanged).sum()

    np.testing.assert_array_equal(jax.grad(fn)(X), 2 * X + 1)
    np.testing.assert_array_equal(jax.jit(jax.grad(fn))(X), 2 * X + 1)
    np.testing.assert_array_equal(jax.hessian(fn)(X), 2 * np.eye(3))
    np.testing.assert_array_equal(jax.jvp(fn, (X,), (X,))[1], (2 * X * X + X).sum())


def test_vmap():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(jax.vmap(ops.cross_replica_sum)(x), x)
    gathered = jax.vmap(lambda row: ops.all_gather(row, 1), in_axes=1)(x)
    np.testing.assert_array_equal(gathered, x.T[:, None])
    exchanged = jax.vmap(lambda row: ops.all_to_all(row[None], 1), in_axes=1)(x)
    np.testing.assert_array_equal(exchanged, x.T[:, None])
    part = jax.vmap(lambda row: ops.reduce_scatter(row[None], 1), in_axes=1)(x)
    np.testing.assert_array_equal(part, x.T)


@pytest.mark.parametrize(
    "operation",
    [
        ops.cross_replica_sum,
        ops.reduce_scatter,
        ops.all_gather,
        ops.all_to_all,
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_rejects_larger_groups(operation, compiled):
    def fn(x):
        return operation(x, 2)

    with pytest.raises(CollectiveError, match="groups of 2 replicas in a program of 1"):
        (jax.jit(fn) if compiled else fn)(X)
