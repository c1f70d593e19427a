"""Solvers whose functions hold marks: JAX keeps their bodies in named tuples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ipujax as ipu
from tests.numbers import same, use_ipus

MATRIX = np.float32([[4, 1, 0], [1, 3, 1], [0, 1, 5]])
B = np.float32([1, 2, 3])


def product(x: Any) -> Any:
    with ipu.scopes.ipu_shard(1):
        h = MATRIX @ x
    with ipu.scopes.ipu_shard(0):
        return h * 1


def direct(matvec: Any, b: Any) -> Any:
    del matvec
    return jnp.linalg.solve(MATRIX, b)


def conjugate_gradients(b: Any) -> Any:
    return jax.scipy.sparse.linalg.cg(product, b, maxiter=5)[0]


def linear_solve(b: Any) -> Any:
    return lax.custom_linear_solve(product, b, direct, symmetric=True)


def root(b: Any) -> Any:
    def tangent_solve(g: Any, y: Any) -> Any:
        return jnp.linalg.solve(jax.jacobian(g)(y), y)

    return lax.custom_root(lambda x: product(x) - b, b, direct, tangent_solve)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("transform", [lambda f: f, lambda f: jax.grad(lambda b: f(b).sum())])
@pytest.mark.parametrize("fn", [conjugate_gradients, linear_solve, root])
def test_numbers_are_those_of_jit(
    fn: Callable[..., Any], transform: Callable[..., Any], engine: str
) -> None:
    use_ipus(2)
    wanted = jax.jit(transform(fn))(B)
    same(ipu.compile(transform(fn), engine=engine)(B), wanted, exact=False)
