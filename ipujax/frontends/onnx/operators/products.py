"""Products of matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ipujax.frontends.onnx.operators.table import operator


@operator("MatMul")
def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b)


@operator("Gemm", 7)
def gemm(
    a: jax.Array,
    b: jax.Array,
    c: jax.Array | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> jax.Array:
    product = jnp.matmul(a.T if transA else a, b.T if transB else b)
    product = product * jnp.asarray(alpha, product.dtype) if alpha != 1 else product
    return product if c is None else product + jnp.asarray(beta, product.dtype) * c
