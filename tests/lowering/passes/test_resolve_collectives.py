from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering import ops
from lowering.ground import CollectiveError
from lowering.jaxprs import jaxpr
from lowering.passes import resolve_collectives
from tests.lowering.samples import V, jaxpr_text, trace


def everything(x):
    own = x + ops.replication_index().astype(x.dtype)
    return (
        ops.cross_replica_sum(own),
        ops.cross_replica_sum(own, 2),
        ops.all_gather(own, 2),
        ops.replica_count(),
    )


def test_four_replicas(golden):
    golden(jaxpr_text(resolve_collectives(trace(everything, V), 4)))


def test_one_replica_says_nothing(golden):
    def fn(x):
        total = ops.cross_replica_sum(x + ops.replication_index())
        return ops.all_gather(total, 1) * ops.replica_count()

    golden(jaxpr_text(resolve_collectives(trace(fn, V), 1)))


def test_inside_of_calls_loops_and_branches(golden):
    @jax.jit
    def inner(x):
        return lax.cond(x[0] > 0, lambda: ops.cross_replica_sum(x), lambda: x)

    def fn(x):
        return lax.fori_loop(0, 2, lambda _, c: inner(c), x)

    golden(jaxpr_text(resolve_collectives(trace(fn, V), 2)))


def test_numbers_on_four_replicas():
    resolved = resolve_collectives(trace(everything, V), 4)
    x = np.array([0.5, 1, 2], np.float32)

    def run(x):
        return jaxpr.run_equations(resolved.jaxpr, resolved.consts, [x])

    mapped = jax.vmap(run, in_axes=None, axis_size=4, axis_name=ops.REPLICAS)
    total, pairs, gathered, count = mapped(x)
    own = np.stack([x + r for r in range(4)])
    halves = own.reshape(2, 2, 3)
    np.testing.assert_array_equal(total, np.tile(own.sum(0), (4, 1)))
    np.testing.assert_array_equal(pairs, halves.sum(1).repeat(2, 0))
    np.testing.assert_array_equal(gathered, halves.repeat(2, 0))
    np.testing.assert_array_equal(count, [4] * 4)


def test_without_collectives_nothing_changes():
    closed = trace(jnp.sin, V)
    assert resolve_collectives(closed, 4) is closed


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("operation", [ops.cross_replica_sum, ops.all_gather])
@pytest.mark.fact("cross_replica.bad_group")
def test_rejects_groups_that_do_not_divide_the_replicas(operation, replicas):
    closed = trace(lambda x: operation(x, 3), V)
    message = f"groups of 3 replicas in a program of {replicas}"
    with pytest.raises(CollectiveError, match=message) as error:
        resolve_collectives(closed, replicas)
    assert __file__ in error.value.where
