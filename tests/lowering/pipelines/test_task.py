"""The primitive of tasks under JAX's own transformations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowering.jaxprs import jaxpr
from lowering.ops import is_task
from lowering.pipelines import TaskRole, TaskSpec, mark_recomputation_checkpoint, run_as_task
from tests.lowering.pipelines.samples import dense, gated, micro_batch, run, squares, values_for

TABLE = np.arange(3.0, dtype=np.float32)
X = jnp.asarray([0.5, -1.0, 2.0])


def program(x):
    def function(a):
        return [jnp.sin(a) * TABLE, a.sum()]

    first, total = run_as_task(function, [x], TaskSpec(kind=TaskRole.FORWARD, stage=0))
    return mark_recomputation_checkpoint(first) * total


def plain(x):
    return jnp.sin(x) * TABLE * x.sum()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "transform",
    [
        lambda f: f,
        jax.jit,
        lambda f: jax.grad(lambda x: f(x).sum()),
        jax.jacfwd,
        lambda f: lambda x: jax.vmap(f)(jnp.stack([x, 2 * x])),
        lambda f: lambda x: jax.linearize(f, x)[1](x),
    ],
    ids=["eager", "jit", "grad", "jacfwd", "vmap", "linearize"],
)
def test_a_task_is_its_function(transform):
    np.testing.assert_allclose(transform(program)(X), transform(plain)(X), rtol=1e-5, atol=1e-6)


def test_constants_become_operands_and_buffers_move_with_them():
    def function(a, total):
        return [total + a * jnp.asarray(TABLE)]

    def traced(a, total):
        spec = TaskSpec(kind=TaskRole.BACKWARD, stage=0, accumulated=((1, 0),))
        return run_as_task(function, [a, total], spec)

    (eqn,) = (e for e in jax.make_jaxpr(traced)(X, X).jaxpr.eqns if is_task(e))
    ((operand, result),) = eqn.params["spec"].accumulated
    assert not eqn.params["body"].consts
    assert (operand, result) == (len(eqn.invars) - 1, 0)


def test_effects_are_seen_from_outside():
    def function(a):
        jax.debug.print("{}", a)
        return [a]

    spec = TaskSpec(kind=TaskRole.FORWARD, stage=0)
    (eqn,) = jax.make_jaxpr(lambda x: run_as_task(function, [x], spec))(X).jaxpr.eqns
    assert is_task(eqn)
    assert eqn.effects


def test_the_sample_pipeline_is_the_gradient():
    """What the tests of the passes start from."""
    body = micro_batch([dense, gated, squares])
    values = values_for(body)
    weights, x, totals = values[:3], values[3], values[4:]

    def loss(weights):
        return squares(weights[2], gated(weights[1], dense(weights[0], x)))

    wanted = [t + g for t, g in zip(totals, jax.grad(loss)(weights), strict=True)]
    for mine, theirs in zip(run(body, values), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    assert str(TaskRole.WEIGHTS) == "weights"
    assert jaxpr.body_of_call(body.jaxpr.eqns[0]) is not None
