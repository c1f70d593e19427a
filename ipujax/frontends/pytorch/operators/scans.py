"""Cumulative sums, products and extremes, and differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.frontends.pytorch.operators.axes import along, picked
from ipujax.frontends.pytorch.operators.table import operator, promoted


@operator("aten.cumsum.default")
@promoted
def cumsum(x: jax.Array, dim: int, dtype: Any = None) -> jax.Array:
    return along(lax.cumsum, x, dim)


@operator("aten.cumprod.default")
@promoted
def cumprod(x: jax.Array, dim: int, dtype: Any = None) -> jax.Array:
    return along(lax.cumprod, x, dim)


@operator("aten.logcumsumexp.default")
@promoted
def logcumsumexp(x: jax.Array, dim: int) -> jax.Array:
    return along(lax.cumlogsumexp, x, dim)


@operator("aten.cummax.default")
def cummax(x: jax.Array, dim: int) -> tuple[jax.Array, jax.Array]:
    return _extremes(lax.cummax, x, dim)


@operator("aten.cummin.default")
def cummin(x: jax.Array, dim: int) -> tuple[jax.Array, jax.Array]:
    return _extremes(lax.cummin, x, dim)


def _extremes(
    function: Callable[..., jax.Array], x: jax.Array, dim: int
) -> tuple[jax.Array, jax.Array]:
    """The extremes so far, and where each was met last."""

    def choose(x: jax.Array, axis: int) -> jax.Array:
        x = x.astype(jnp.int8) if x.dtype == jnp.bool_ else x
        met = (x == function(x, axis)) | jnp.isnan(x)
        return lax.cummax(jnp.where(met, lax.broadcasted_iota(jnp.int32, x.shape, axis), 0), axis)

    return picked(x, dim, True, choose)


@operator("aten.diff.default")
def diff(
    x: jax.Array, n: int = 1, dim: int = -1, prepend: jax.Array | None = None,
    append: jax.Array | None = None,
) -> jax.Array:  # fmt: skip
    return jnp.diff(x, n, dim, prepend, append)
