"""Kernels from files: one replica's view of a function that is for all of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering.ground import InternalError
from lowering.jaxprs import count_operations, trace_flat
from lowering.ops import REPLICAS, Exported, call_exported
from lowering.ops.exported import exported_p

AVAL = jax.typeof(jnp.zeros(3))


def kernel(function, replicas=1):
    return Exported(function, (AVAL,), replicas, 1e6)


def test_one_replica_is_the_function():
    own = kernel(lambda x, y: [x + y])
    x = jnp.arange(3.0)
    for call in (lambda: call_exported(own, [x, x]), jax.jit(lambda: call_exported(own, [x, x]))):
        (result,) = call()
        np.testing.assert_array_equal(result, 2 * x)


@pytest.mark.exhaustive
@pytest.mark.parametrize("shared", [False, True])
def test_replicas_are_mapped_over_by_the_function_itself(shared):
    """Also in a loop, and where all replicas have the same operands."""
    own = kernel(lambda x: [x + x.sum(0) + jnp.arange(2.0)[:, None]], replicas=2)

    def one(x):
        return lax.fori_loop(0, 2, lambda _, x: call_exported(own, [x])[0], x)

    x = jnp.ones(3) if shared else jnp.stack([jnp.ones(3), jnp.zeros(3)])
    in_axes = None if shared else 0
    mapped = jax.vmap(one, in_axes, axis_name=REPLICAS, axis_size=2)(x)
    wanted = jnp.broadcast_to(x, (2, 3))
    for _ in range(2):
        (wanted,) = own.function(wanted)
    np.testing.assert_array_equal(mapped, wanted)


def test_one_of_several_replicas_cannot_run_alone():
    own = kernel(lambda x: [x], replicas=2)
    with pytest.raises(InternalError, match="for several replicas"):
        exported_p.bind(0, jnp.ones(3), kernel=own, is_whole=False)


def test_weak_types_stay():
    weak = jax.typeof(1.0)
    own = Exported(lambda x: [x], (weak,), 1, 0.0)
    assert trace_flat(lambda x: call_exported(own, [x]), [weak]).out_avals == [weak]


def test_what_it_says_of_itself_is_believed():
    own = kernel(lambda x: [x])
    jaxpr = trace_flat(lambda x: call_exported(own, [x]), [AVAL]).jaxpr
    assert count_operations(jaxpr) == 1e6
