from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering import ops
from lowering.ground import CollectiveError
from lowering.jaxprs import jaxpr
from lowering.passes import resolve_norms
from tests.lowering.samples import V, jaxpr_text, trace


def moments(x):
    mean = ops.norm_group_mean(jnp.mean(x, keepdims=True))
    variance = ops.norm_group_mean(ops.mean_square_deviation(x, mean, (0,)))
    return mean, variance, variance * ops.bessel_correction_over_group(3)


@pytest.mark.parametrize(("stable", "group"), [(False, 1), (True, 1), (True, 2)])
def test_what_the_configuration_says(golden, stable, group):
    closed = trace(moments, V)
    golden(jaxpr_text(resolve_norms(closed, stable=stable, group=group, replicas=4)))


@pytest.mark.parametrize("stable", [False, True])
def test_numbers(stable):
    closed = resolve_norms(trace(moments, V), stable=stable, group=1, replicas=1)
    x = np.array([1, 2, 6], np.float32)
    found = jaxpr.run_equations(closed.jaxpr, closed.consts, [x])
    np.testing.assert_allclose(np.ravel(found), [3, x.var(), x.var(ddof=1)], rtol=1e-6)
    np.testing.assert_allclose(np.ravel(jax.jit(moments)(x)), np.ravel(found), rtol=1e-6)


def test_inside_of_calls_and_loops():
    inner = jax.jit(lambda x: moments(x)[1] + x)
    closed = trace(lambda x: lax.fori_loop(0, 2, lambda _, x: inner(x), x), V)
    found = jaxpr_text(resolve_norms(closed, stable=True, group=2, replicas=2))
    assert "ipu_cross_replica_sum" in found
    assert not any(primitive.name in found for primitive in ops.NORM_PRIMITIVES)


def test_nothing_to_do():
    closed = trace(lambda x: x + 1, V)
    assert resolve_norms(closed, stable=True, group=3, replicas=4) is closed


def test_only_shared_statistics_need_groups_that_divide():
    alone = trace(lambda x: ops.mean_square_deviation(x, jnp.mean(x, keepdims=True), (0,)), V)
    resolve_norms(alone, stable=False, group=3, replicas=4)
    with pytest.raises(CollectiveError, match=r"group_size is 3.*number of replicas, 4") as info:
        resolve_norms(trace(moments, V), stable=False, group=3, replicas=4)
    assert "test_resolve_norms.py" in str(info.value)
