"""PyTorch products of vectors and matrices."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ipujax.doors.graphs import Operand
from ipujax.doors.torch.operators.table import operator, promote_arguments


@operator("aten.matmul.default", "aten.mm.default", "aten.bmm.default", "aten.mv.default")
@operator("aten.dot.default", "aten.linalg_matmul.default")
def matmul(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.matmul(x, y)


@operator("aten.vdot.default")
def vdot(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.vdot(x, y)


@operator("aten.addmm.default", "aten.addmv.default", "aten.baddbmm.default", takes_call=True)
@promote_arguments
def addmm(
    x: jax.Array, y: jax.Array, z: jax.Array, beta: ArrayLike = 1, alpha: ArrayLike = 1
) -> jax.Array:
    return _add_scaled_product(x, jnp.matmul(y, z), beta, alpha)


@operator("aten.addbmm.default", takes_call=True)
@promote_arguments
def addbmm(
    x: jax.Array, y: jax.Array, z: jax.Array, beta: ArrayLike = 1, alpha: ArrayLike = 1
) -> jax.Array:
    return _add_scaled_product(x, jnp.einsum("bij,bjk->ik", y, z), beta, alpha)


@operator("aten.addr.default", takes_call=True)
@promote_arguments
def addr(
    x: jax.Array, y: jax.Array, z: jax.Array, beta: ArrayLike = 1, alpha: ArrayLike = 1
) -> jax.Array:
    return _add_scaled_product(x, jnp.outer(y, z), beta, alpha)


def _add_scaled_product(
    x: jax.Array, product: jax.Array, beta: ArrayLike, alpha: Operand
) -> jax.Array:
    """Adds an array and a product with factors; a term with factor 0 is left out, even NaN."""
    if alpha == 0:
        product = jnp.zeros_like(product)
    elif alpha != 1:
        product = alpha * product
    if beta == 0:
        return product
    return product + (x if beta == 1 else beta * x)


@operator("aten.einsum.default")
def einsum(equation: str, arrays: Sequence[jax.Array], path: Operand = None) -> jax.Array:
    return jnp.einsum(equation, *arrays)


@operator("aten.linalg_cross.default", takes_call=True)
@promote_arguments
def linalg_cross(x: jax.Array, y: jax.Array, dim: int = -1) -> jax.Array:
    return jnp.cross(x, y, axis=dim)


@operator("aten.linalg_matrix_power.default", "aten.matrix_power.default")
def matrix_power(x: jax.Array, n: int) -> jax.Array:
    return jnp.linalg.matrix_power(x, n)
