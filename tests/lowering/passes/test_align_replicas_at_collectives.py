from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering import ir, ops
from lowering.jaxprs import jaxpr
from lowering.passes import align_replicas_at_collectives
from tests.lowering.samples import V, jaxpr_text, kernels, lowered

REPLICAS = 4


def kernel_of(program: ir.Program) -> jaxpr.ClosedJaxpr:
    (node,) = kernels(program)
    return node.kernel.jaxpr


def deciding(x):
    own = x + ops.replication_index().astype(x.dtype)
    total = ops.cross_replica_sum
    return (
        lax.cond(own[0] > 2, lambda: total(own), lambda: own),
        lax.switch(own[0].astype(jnp.int32), [jnp.sin, total, lambda x: total(x, 2)], own),
        lax.while_loop(lambda c: c[0] < 40, lambda c: c + total(own) + own, own),
    )


def test_a_condition_and_a_loop(golden):
    def fn(x):
        total = ops.cross_replica_sum
        y = lax.cond(x[0] > 2, lambda: total(x), lambda: x)
        return lax.while_loop(lambda c: c[0] < 40, lambda c: c + total(x), y)

    golden(jaxpr_text(kernel_of(align_replicas_at_collectives(lowered(fn, V, ipus=REPLICAS)))))


@pytest.mark.exhaustive
def test_numbers_stay():
    program = lowered(deciding, V, ipus=REPLICAS)
    before, after = kernel_of(program), kernel_of(align_replicas_at_collectives(program))
    assert before is not after
    x = jnp.array([0.5, 1, 2])

    def run(closed):
        def one(x):
            return jaxpr.run_equations(closed.jaxpr, closed.consts, [x])

        return jax.vmap(one, None, axis_size=REPLICAS, axis_name=ops.REPLICAS)(x)

    for mine, theirs in zip(run(after), run(before), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_what_says_nothing_under_conditions_stays():
    def fn(x):
        y = lax.cond(x[0] > 2, jnp.sin, jnp.cos, x) + ops.replication_index()
        return lax.fori_loop(0, 3, lambda _, c: ops.cross_replica_sum(c), y)

    program = lowered(fn, V, ipus=REPLICAS)
    assert kernel_of(align_replicas_at_collectives(program)) is kernel_of(program)
