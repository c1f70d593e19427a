"""PyTorch reductions: sums, products, means, extrema and counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from ipujax.doors.graphs import Operand
from ipujax.doors.torch.operators.axes import axes_to_reduce, select_along_axis
from ipujax.doors.torch.operators.table import operator, promote_arguments

Dims = int | Sequence[int] | None


@operator("aten.sum.default", "aten.sum.dim_IntList", takes_call=True)
@promote_arguments
def sum_over_dims(
    x: jax.Array, dim: Dims = None, keepdim: bool = False, dtype: DTypeLike | None = None
) -> jax.Array:
    return jnp.sum(x, axes_to_reduce(x, dim), x.dtype, keepdims=keepdim)


@operator("aten.prod.default", "aten.prod.dim_int", takes_call=True)
@promote_arguments
def prod(
    x: jax.Array, dim: Dims = None, keepdim: bool = False, dtype: DTypeLike | None = None
) -> jax.Array:
    return jnp.prod(x, axes_to_reduce(x, dim), x.dtype, keepdims=keepdim)


@operator("aten.mean.default", "aten.mean.dim", takes_call=True)
@promote_arguments
def mean(x: jax.Array, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> jax.Array:
    return jnp.mean(x, axes_to_reduce(x, dim), keepdims=keepdim)


@operator("aten.logsumexp.default", "aten.special_logsumexp.default", takes_call=True)
@promote_arguments
def logsumexp(x: jax.Array, dim: Dims, keepdim: bool = False) -> jax.Array:
    return jax.nn.logsumexp(x, axes_to_reduce(x, dim), keepdims=keepdim)


@operator("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_(x: jax.Array, dim: Dims = None, keepdim: bool = False) -> jax.Array:
    return jnp.any(x, axes_to_reduce(x, dim), keepdims=keepdim)


@operator("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_(x: jax.Array, dim: Dims = None, keepdim: bool = False) -> jax.Array:
    return jnp.all(x, axes_to_reduce(x, dim), keepdims=keepdim)


@operator("aten.amax.default", "aten.max.default")
def amax(x: jax.Array, dim: Dims = None, keepdim: bool = False) -> jax.Array:
    return jnp.max(x, axes_to_reduce(x, dim), keepdims=keepdim)


@operator("aten.amin.default", "aten.min.default")
def amin(x: jax.Array, dim: Dims = None, keepdim: bool = False) -> jax.Array:
    return jnp.min(x, axes_to_reduce(x, dim), keepdims=keepdim)


@operator("aten.aminmax.default", "aten._aminmax.default", "aten._aminmax.dim")
def aminmax(x: jax.Array, dim: Dims = None, keepdim: bool = False) -> tuple[jax.Array, jax.Array]:
    return amin(x, dim, keepdim), amax(x, dim, keepdim)


@operator("aten.argmax.default")
def argmax(x: jax.Array, dim: int | None = None, keepdim: bool = False) -> jax.Array:
    return _index_of_extremum(jnp.argmax, x, dim, keepdim)


@operator("aten.argmin.default")
def argmin(x: jax.Array, dim: int | None = None, keepdim: bool = False) -> jax.Array:
    return _index_of_extremum(jnp.argmin, x, dim, keepdim)


def _index_of_extremum(
    function: Callable[..., Operand], x: jax.Array, dim: int | None, keepdim: bool
) -> jax.Array:
    if dim is None or x.ndim == 0:
        return function(x.reshape(-1)).reshape((1,) * x.ndim if keepdim else ())
    return function(x, dim, keepdims=keepdim)


@operator("aten.max.dim")
def max_and_index(x: jax.Array, dim: int, keepdim: bool = False) -> tuple[jax.Array, jax.Array]:
    return select_along_axis(x, dim, keepdim, lambda x, axis: jnp.argmax(x, axis, keepdims=True))


@operator("aten.min.dim")
def min_and_index(x: jax.Array, dim: int, keepdim: bool = False) -> tuple[jax.Array, jax.Array]:
    return select_along_axis(x, dim, keepdim, lambda x, axis: jnp.argmin(x, axis, keepdims=True))
