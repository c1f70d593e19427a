"""Reductions of the segments that lengths or offsets cut an axis into."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ipujax.frontends.pytorch.operators.scattering import scatter_reduce
from ipujax.frontends.pytorch.operators.table import operator

_NAMES = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}
_NEUTRAL = {"sum": 0, "prod": 1, "amax": -jnp.inf, "amin": jnp.inf}


@operator("aten.segment_reduce.default")
def segment_reduce(
    x: jax.Array,
    reduce: str,
    *,
    lengths: jax.Array | None = None,
    offsets: jax.Array | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> jax.Array:
    """Each segment takes part with `initial`; `unsafe` is about PyTorch's checks of lengths."""
    if offsets is None:
        offsets = _offsets(lengths)
    name, count = _NAMES[reduce], offsets.shape[-1] - 1
    index = _segments(offsets, x.shape[axis])
    index = jnp.broadcast_to(index.reshape(*index.shape, *[1] * (x.ndim - index.ndim)), x.shape)
    # One segment more is for the elements that are in none.
    start = jnp.full((*x.shape[:axis], count + 1, *x.shape[axis + 1 :]), _NEUTRAL[name], x.dtype)
    results = scatter_reduce(start, axis, index, x, name)
    results = jax.lax.slice_in_dim(results, 0, count, axis=axis)
    if initial is not None:
        results = _with_initial(results, name, jnp.asarray(initial, x.dtype))
    if reduce != "mean":
        return results
    sizes = jnp.diff(offsets).reshape(*offsets.shape[:-1], count, *[1] * (x.ndim - offsets.ndim))
    return results / (sizes if initial is None else jnp.maximum(sizes, 1))


def _offsets(lengths: Any) -> jax.Array:
    ends = jnp.cumsum(lengths, -1)
    return jnp.concatenate([jnp.zeros_like(ends[..., :1]), ends], -1)


def _segments(offsets: jax.Array, size: int) -> jax.Array:
    """Of each element its segment; the number of segments for one that is in none."""
    places = jnp.arange(size)[:, None]
    segments = jnp.sum(places >= offsets[..., None, 1:], -1)
    return jnp.where(places[:, 0] < offsets[..., :1], offsets.shape[-1] - 1, segments)


def _with_initial(results: jax.Array, name: str, initial: jax.Array) -> jax.Array:
    """Of equal extremes those in the tensor have the derivative."""
    if name == "sum":
        return results + initial
    if name == "prod":
        return results * initial
    is_initial = results < initial if name == "amax" else results > initial
    return jnp.where(is_initial, initial, results)
