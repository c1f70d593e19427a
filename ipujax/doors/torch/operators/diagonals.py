"""PyTorch operators on diagonals and triangles of matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.torch.operators.table import operator


@operator("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(x: jax.Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> jax.Array:
    return jnp.diagonal(x, offset, axis1, axis2)


@operator("aten.diag_embed.default")
def diag_embed(x: jax.Array, offset: int = 0, axis1: int = -2, axis2: int = -1) -> jax.Array:
    size = x.shape[-1] + abs(offset)
    steps = np.arange(x.shape[-1])
    rows, columns = steps + max(-offset, 0), steps + max(offset, 0)
    matrices = jnp.zeros((*x.shape[:-1], size, size), x.dtype).at[..., rows, columns].set(x)
    return jnp.moveaxis(matrices, (-2, -1), (axis1, axis2))


@operator("aten.tril.default")
def tril(x: jax.Array, diagonal: int = 0) -> jax.Array:
    return jnp.tril(x, diagonal)


@operator("aten.triu.default")
def triu(x: jax.Array, diagonal: int = 0) -> jax.Array:
    return jnp.triu(x, diagonal)


@operator("aten.trace.default")
def trace(x: jax.Array) -> jax.Array:
    return jnp.trace(x)
