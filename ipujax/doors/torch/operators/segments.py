"""PyTorch reductions of segments of an axis, given by lengths or offsets."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Operand
from ipujax.doors.torch.operators.scattering import scatter_reduce
from ipujax.doors.torch.operators.table import operator

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
    initial: Operand = None,
) -> jax.Array:
    """Reduces each segment together with `initial`; `unsafe` only skips checks of lengths."""
    if offsets is None:
        offsets = _offsets_of_lengths(lengths)
    name, count = _NAMES[reduce], offsets.shape[-1] - 1
    index = _segment_of_elements(offsets, x.shape[axis])
    index = jnp.broadcast_to(index.reshape(*index.shape, *[1] * (x.ndim - index.ndim)), x.shape)
    # One more segment takes the elements that lie in none.
    start = jnp.full((*x.shape[:axis], count + 1, *x.shape[axis + 1 :]), _NEUTRAL[name], x.dtype)
    results = scatter_reduce(start, axis, index, x, name)
    results = jax.lax.slice_in_dim(results, 0, count, axis=axis)
    if initial is not None:
        results = _combine_with_initial(results, name, jnp.asarray(initial, x.dtype))
    if reduce != "mean":
        return results
    sizes = jnp.diff(offsets).reshape(*offsets.shape[:-1], count, *[1] * (x.ndim - offsets.ndim))
    return results / (sizes if initial is None else jnp.maximum(sizes, 1))


def _offsets_of_lengths(lengths: Operand) -> jax.Array:
    ends = jnp.cumsum(lengths, -1)
    return jnp.concatenate([jnp.zeros_like(ends[..., :1]), ends], -1)


def _segment_of_elements(offsets: jax.Array, size: int) -> jax.Array:
    """Returns the segment of each element; the number of segments for one in none."""
    positions = jnp.arange(size)[:, None]
    segments = jnp.sum(positions >= offsets[..., None, 1:], -1)
    return jnp.where(positions[:, 0] < offsets[..., :1], offsets.shape[-1] - 1, segments)


def _combine_with_initial(results: jax.Array, name: str, initial: jax.Array) -> jax.Array:
    """Combines results with an initial value; of equal extrema the tensor's get the gradient."""
    if name == "sum":
        return results + initial
    if name == "prod":
        return results * initial
    is_initial = results < initial if name == "amax" else results > initial
    return jnp.where(is_initial, initial, results)
