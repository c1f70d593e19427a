"""PyTorch dropout operators."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call
from ipujax.doors.torch.operators.table import operator

# SELU of minus infinity, the value of elements that alpha dropout drops.
_SATURATED = -1.7580993408473766


def drop_elements(key: jax.Array, x: jax.Array, p: float) -> jax.Array:
    """Drops elements with probability `p` and scales the others."""
    return _drop_by_mask_shape(key, x, p, x.shape)


def _drop_by_mask_shape(
    key: jax.Array, x: jax.Array, p: float, mask_shape: tuple[int, ...]
) -> jax.Array:
    """Drops elements by a mask of some shape that broadcasts to the array."""
    if p == 1:
        return jnp.zeros_like(x)
    return jnp.where(_draw_keep_mask(key, p, mask_shape), x / (1 - p), 0)


def _draw_keep_mask(key: jax.Array, p: float, shape: tuple[int, ...]) -> jax.Array:
    """Draws a mask of the elements that are kept.

    Each 32-bit random number decides two elements, by 16 bits each: drawing takes most of the time.
    """
    size = math.prod(shape)
    bits = jax.random.bits(key, ((size + 1) // 2,), jnp.uint32)
    limit = round((1 - p) * 2**16)
    halves = jnp.concatenate([bits & (2**16 - 1), bits >> 16])
    return (halves < limit)[:size].reshape(shape)


def _channel_mask_shape(x: jax.Array) -> tuple[int, ...]:
    """Returns the shape of a mask that drops whole channels."""
    return (*x.shape[:2], *[1] * (x.ndim - 2))


@operator("aten.dropout.default", takes_call=True)
def dropout(call: Call, x: jax.Array, p: float, train: bool) -> jax.Array:
    return drop_elements(call.key, x, p) if train and p > 0 else x


@operator("aten.native_dropout.default", takes_call=True)
def native_dropout(
    call: Call, x: jax.Array, p: float, train: bool | None
) -> tuple[jax.Array, jax.Array]:
    if train is False or p == 0:
        return x, jnp.ones(x.shape, bool)
    is_kept = _draw_keep_mask(call.key, p, x.shape)
    return jnp.where(is_kept, x / (1 - p), 0) if p < 1 else jnp.zeros_like(x), is_kept


@operator("aten.feature_dropout.default", takes_call=True)
def feature_dropout(call: Call, x: jax.Array, p: float, train: bool) -> jax.Array:
    return _drop_by_mask_shape(call.key, x, p, _channel_mask_shape(x)) if train and p > 0 else x


@operator("aten.alpha_dropout.default", takes_call=True)
def alpha_dropout(call: Call, x: jax.Array, p: float, train: bool) -> jax.Array:
    return _drop_to_saturation(call.key, x, p, x.shape) if train and p > 0 else x


@operator("aten.feature_alpha_dropout.default", takes_call=True)
def feature_alpha_dropout(call: Call, x: jax.Array, p: float, train: bool) -> jax.Array:
    return _drop_to_saturation(call.key, x, p, _channel_mask_shape(x)) if train and p > 0 else x


def _drop_to_saturation(
    key: jax.Array, x: jax.Array, p: float, mask_shape: tuple[int, ...]
) -> jax.Array:
    """Drops elements so that the mean and variance of SELU outputs are kept."""
    if p == 1:
        return jnp.zeros_like(x)
    scale = 1 / math.sqrt((_SATURATED**2 * p + 1) * (1 - p))
    is_kept = _draw_keep_mask(key, p, mask_shape)
    return (jnp.where(is_kept, x, _SATURATED) - _SATURATED * p) * scale
