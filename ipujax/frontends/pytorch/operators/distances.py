"""Distances and similarities of vectors."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.frontends.pytorch.operators.table import operator


def absolute(x: jax.Array) -> jax.Array:
    """`|x|`, whose derivative at 0 is 0 for PyTorch, and 1 for JAX."""
    return x * jnp.sign(x)


def vector_norm(x: jax.Array, p: float, axis: int, keepdims: bool = False) -> jax.Array:
    """The p-norm; its derivative at 0 is 0, as PyTorch's."""
    sizes = absolute(x)
    if p == 0:
        return jnp.sum(x != 0, axis, keepdims=keepdims).astype(x.dtype)
    if p == 1:
        return jnp.sum(sizes, axis, keepdims=keepdims)
    if math.isinf(p):
        return (jnp.max if p > 0 else jnp.min)(sizes, axis, keepdims=keepdims)
    is_zero = jnp.all(sizes == 0, axis, keepdims=True)
    sizes = jnp.where(is_zero, 1, sizes)
    if p == 2:
        result = jnp.sqrt(jnp.sum(jnp.square(sizes), axis, keepdims=True))
    else:
        powers = jnp.where(sizes == 0, 0, jnp.where(sizes == 0, 1, sizes) ** p)
        result = jnp.sum(powers, axis, keepdims=True) ** (1 / p)
    result = jnp.where(is_zero, 0, result)
    return result if keepdims else result.squeeze(axis)


@operator("aten.pairwise_distance.default")
def pairwise_distance(
    x: jax.Array, y: jax.Array, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> jax.Array:
    return vector_norm(x - y + eps, p, -1, keepdim)


@operator("aten.cosine_similarity.default")
def cosine_similarity(x: jax.Array, y: jax.Array, dim: int = 1, eps: float = 1e-8) -> jax.Array:
    x, y = jnp.broadcast_arrays(x, y)
    sizes = [jnp.maximum(vector_norm(v, 2, dim, True), eps) for v in (x, y)]
    return jnp.sum((x / sizes[0]) * (y / sizes[1]), dim)


@operator("aten.pdist.default", "aten._pdist_forward.default")
def pdist(x: jax.Array, p: float = 2.0) -> jax.Array:
    rows, columns = np.triu_indices(x.shape[0], 1)
    return vector_norm(x[rows] - x[columns], p, -1)
