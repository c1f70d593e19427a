"""PyTorch norms and distances, with PyTorch's derivatives at 0."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from ipujax.doors.torch.operators.axes import axes_to_reduce
from ipujax.doors.torch.operators.reductions import Dims
from ipujax.doors.torch.operators.table import operator
from ipujax.doors.torch.operators.unary import absolute


def root_with_zero_slope(x: jax.Array, degree: float = 2.0) -> jax.Array:
    """Returns a root whose derivative at 0 is 0."""
    is_zero = x == 0
    safe = jnp.where(is_zero, 1, x)
    return jnp.where(is_zero, 0, lax.sqrt(safe) if degree == 2 else safe ** (1 / degree))


def vector_norm(x: jax.Array, order: float, axes: tuple[int, ...], keepdim: bool) -> jax.Array:
    """Returns the norm of the vectors along some axes together."""
    if order == 2:
        squares = x.real**2 + x.imag**2 if jnp.iscomplexobj(x) else x * x
        return root_with_zero_slope(jnp.sum(squares, axes, keepdims=keepdim))
    size = absolute(x)
    if order == 0:
        return jnp.sum((size != 0).astype(size.dtype), axes, keepdims=keepdim)
    if order == 1:
        return jnp.sum(size, axes, keepdims=keepdim)
    if math.isinf(order):
        initial = 0 if order > 0 and 0 in x.shape else None
        reduce = jnp.max if order > 0 else jnp.min
        return reduce(size, axes, keepdims=keepdim, initial=initial)
    is_zero = size == 0
    powers = jnp.where(is_zero, 0 if order > 0 else jnp.inf, jnp.where(is_zero, 1, size) ** order)
    return root_with_zero_slope(jnp.sum(powers, axes, keepdims=keepdim), order)


@operator("aten.linalg_vector_norm.default")
def linalg_vector_norm(
    x: jax.Array,
    ord: float = 2,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
) -> jax.Array:
    x = x if dtype is None else x.astype(dtype)
    return vector_norm(x, ord, axes_to_reduce(x, dim), keepdim)


@operator("aten.norm.Scalar", "aten.norm.ScalarOpt_dim", "aten.norm.ScalarOpt_dim_dtype")
@operator("aten.frobenius_norm.dim", "aten.norm.ScalarOpt_dtype")
def norm(
    x: jax.Array,
    p: ArrayLike | None = None,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
) -> jax.Array:
    return linalg_vector_norm(x, 2 if p is None else p, dim, keepdim, dtype)


@operator("aten.dist.default")
def dist(x: jax.Array, y: jax.Array, p: float = 2) -> jax.Array:
    return linalg_vector_norm(x - y, p)


@operator("aten.cdist.default", "aten._cdist_forward.default")
def cdist(x: jax.Array, y: jax.Array, p: float = 2, compute_mode: int | None = None) -> jax.Array:
    differences = x[..., :, None, :] - y[..., None, :, :]
    return vector_norm(differences, p, (differences.ndim - 1,), False)


@operator("aten.pdist.default", "aten._pdist_forward.default")
def pdist(x: jax.Array, p: float = 2.0) -> jax.Array:
    rows, columns = np.triu_indices(x.shape[0], 1)
    return vector_norm(x[rows] - x[columns], p, (-1,), False)
