"""ONNX matrix and tensor products."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Operand
from ipujax.doors.onnx.operators.table import operator


@operator("MatMul")
def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b)


@operator("Gemm", 7)
def gemm(
    a: jax.Array,
    b: jax.Array,
    c: Operand = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> jax.Array:
    product = jnp.matmul(a.T if transA else a, b.T if transB else b)
    product = product if alpha == 1 else (alpha * product).astype(product.dtype)
    return product if c is None else product + (c if beta == 1 else (beta * c).astype(c.dtype))


@operator("Einsum", 12)
def einsum(*arrays: jax.Array, equation: str) -> jax.Array:
    return jnp.einsum(equation, *arrays)


@operator("Det", 11)
def det(x: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32) if x.dtype.itemsize < 4 else x
    return jnp.linalg.det(wide).astype(x.dtype)


@operator("MatMulInteger", 10)
def matmul_integer(
    a: jax.Array, b: jax.Array, a_zero_point: Operand = None, b_zero_point: Operand = None
) -> jax.Array:
    """Multiplies integers; a zero point is a number, or one for each row of a or column of b."""
    return jnp.matmul(
        subtract_zero_point(a, a_zero_point), subtract_zero_point(b, b_zero_point, columns=True)
    )


def subtract_zero_point(x: jax.Array, zero_point: Operand, columns: bool = False) -> jax.Array:
    """Returns int32 values minus their zero point."""
    x = x.astype(jnp.int32)
    return (
        x if zero_point is None else x - broadcast_to_lines(zero_point, columns).astype(jnp.int32)
    )


def broadcast_to_lines(values: Operand, columns: bool) -> Operand:
    """Returns a number, or one for each row or column, shaped to broadcast with the matrix."""
    return values if values.ndim != 1 or columns or values.size == 1 else values[:, None]
