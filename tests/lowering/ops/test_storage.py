"""`store` and `load` as far as JAX knows them: identities."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowering import ir
from lowering.ops import Storage, bring_from_storage, move_to_storage
from tests.lowering.samples import V, lowered, shard, text_of

REMOTE = Storage(remote=True)
X = jnp.asarray([1.0, 2.0, 3.0])


def through(x):
    return jnp.sin(bring_from_storage(move_to_storage(x * x, REMOTE), REMOTE))


def plain(x):
    return jnp.sin(x * x)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: f,
        jax.jit,
        lambda f: jax.grad(lambda x: f(x).sum()),
        lambda f: jax.jit(jax.hessian(lambda x: f(x).sum())),
        lambda f: lambda x: jax.vmap(f, in_axes=1)(jnp.stack([x, x + 1], 1)),
        lambda f: lambda x: jax.lax.scan(lambda c, e: (f(c), e), x, jnp.arange(3))[0],
    ],
    ids=["eager", "jit", "grad", "hessian", "vmap", "scan"],
)
def test_numbers_pass_through(transform):
    np.testing.assert_allclose(transform(through)(X), transform(plain)(X), rtol=1e-6)


def test_nowhere_in_particular_is_nothing_at_all():
    assert not Storage()
    assert REMOTE
    assert Storage(sharded=True)
    assert move_to_storage(X, Storage()) is X
    assert bring_from_storage(X, Storage()) is X


def test_steps_of_the_program(golden):
    def program(x):
        with shard(1):
            kept = move_to_storage(x * 2, REMOTE)
        with shard(0):
            y = x + 1
        with shard(1):
            return bring_from_storage(kept, REMOTE) + y

    golden(text_of(program, V))


def test_a_loop_that_loads_is_split():
    """Otherwise its kernel would hold the whole value all the time."""

    def program(x):
        kept = move_to_storage(x, REMOTE)
        return jax.lax.fori_loop(0, 3, lambda _, c: c + bring_from_storage(kept, REMOTE), x)

    nodes = list(ir.walk_nodes(lowered(program, V).body))
    (repeat,) = (node for node in nodes if isinstance(node, ir.Repeat))
    assert any(isinstance(node, ir.Load) for node in ir.walk_nodes(repeat.body))
