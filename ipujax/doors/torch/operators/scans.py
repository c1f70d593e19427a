"""PyTorch cumulative sums, products and extrema, and differences."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from ipujax.doors.torch.operators.axes import apply_along_axis, select_along_axis
from ipujax.doors.torch.operators.table import operator, promote_arguments


@operator("aten.cumsum.default", takes_call=True)
@promote_arguments
def cumsum(x: jax.Array, dim: int, dtype: DTypeLike | None = None) -> jax.Array:
    return apply_along_axis(lax.cumsum, x, dim)


@operator("aten.cumprod.default", takes_call=True)
@promote_arguments
def cumprod(x: jax.Array, dim: int, dtype: DTypeLike | None = None) -> jax.Array:
    return apply_along_axis(lax.cumprod, x, dim)


@operator("aten.logcumsumexp.default", takes_call=True)
@promote_arguments
def logcumsumexp(x: jax.Array, dim: int) -> jax.Array:
    return apply_along_axis(lax.cumlogsumexp, x, dim)


@operator("aten.cummax.default")
def cummax(x: jax.Array, dim: int) -> tuple[jax.Array, jax.Array]:
    return _cumulative_extrema(lax.cummax, x, dim)


@operator("aten.cummin.default")
def cummin(x: jax.Array, dim: int) -> tuple[jax.Array, jax.Array]:
    return _cumulative_extrema(lax.cummin, x, dim)


def _cumulative_extrema(
    function: Callable[..., jax.Array], x: jax.Array, dim: int
) -> tuple[jax.Array, jax.Array]:
    """Returns the cumulative extrema, and the last index of each."""

    def find_last_index(x: jax.Array, axis: int) -> jax.Array:
        x = x.astype(jnp.int8) if x.dtype == jnp.bool_ else x
        is_extremum = (x == function(x, axis)) | jnp.isnan(x)
        return lax.cummax(
            jnp.where(is_extremum, lax.broadcasted_iota(jnp.int32, x.shape, axis), 0), axis
        )

    return select_along_axis(x, dim, True, find_last_index)
