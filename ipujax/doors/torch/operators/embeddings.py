"""PyTorch embedding tables."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call
from ipujax.doors.torch.operators.table import operator

Array = jax.Array
_SUM, _MEAN, _MAX = 0, 1, 2


@operator("aten.embedding.default")
def embedding(
    weight: Array,
    indices: Array,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Array:
    """Returns rows of a table; the padding row has no gradient, and `sparse` is ignored."""
    rows = jnp.take(weight, indices, 0, mode="clip")
    if scale_grad_by_freq:
        counts = jnp.zeros(weight.shape[0], rows.dtype).at[indices].add(1)
        rows = _scale_gradient(rows, 1 / counts[indices][..., None])
    if padding_idx < 0:
        return rows
    is_padding = (indices == padding_idx)[..., None]
    return jnp.where(is_padding, jax.lax.stop_gradient(rows), rows)


def _scale_gradient(x: Array, factor: Array) -> Array:
    """Returns equal values whose gradient is scaled."""
    fixed = jax.lax.stop_gradient(x)
    return fixed + (x - fixed) * factor


@operator(
    "aten.embedding_bag.padding_idx",
    "aten.embedding_bag.default",
    "aten._embedding_bag.default",
    takes_call=True,
)
def embedding_bag(
    call: Call,
    weight: Array,
    indices: Array,
    offsets: Array,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Array, ...]:
    """Returns the bags, the bag of each index, the sizes of bags and rows of maxima."""
    avals = call.node.avals[0]
    count = avals[0].shape[0]
    padding = (
        -1 if padding_idx is None else padding_idx % weight.shape[0] if padding_idx != -1 else -1
    )
    # An index belongs to the last bag that begins at or before it.
    bags = jnp.searchsorted(offsets[:count], jnp.arange(indices.size), side="right") - 1
    rows = embedding(weight, indices, padding, scale_grad_by_freq)
    is_used = (indices != padding)[:, None]
    sizes = jax.ops.segment_sum(is_used[:, 0].astype(jnp.int32), bags, count)
    if mode == _MAX:
        best = jax.ops.segment_max(jnp.where(is_used, rows, -jnp.inf), bags, count)
        result = jnp.where(sizes[:, None] > 0, best, 0)
    else:
        if per_sample_weights is not None:
            rows = rows * per_sample_weights[:, None]
        result = jax.ops.segment_sum(jnp.where(is_used, rows, 0), bags, count)
    if mode == _MEAN:
        result = result / jnp.maximum(sizes, 1)[:, None]
    return result, *(
        _zeros_if_other_shape(v, aval.shape)
        for v, aval in zip((bags, sizes, sizes), avals[1:], strict=True)
    )


def _zeros_if_other_shape(values: Array, shape: tuple[int, ...]) -> Array:
    """Returns values, or zeros if PyTorch's unused backward result has another shape."""
    return values if values.shape == shape else jnp.zeros(shape, values.dtype)
