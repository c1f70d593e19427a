"""Dropout."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call
from ipujax.frontends.pytorch.operators.table import operator

# What SELU gives for minus infinity: alpha dropout puts it where it drops.
_SATURATED = -1.7580993408473766


def dropped(key: jax.Array, x: jax.Array, p: float) -> jax.Array:
    """With elements dropped with a probability, and the others scaled."""
    return _dropped(key, x, p, x.shape)


def _dropped(key: jax.Array, x: jax.Array, p: float, shape: tuple[int, ...]) -> jax.Array:
    """A mask of some shape decides what is dropped."""
    if p == 1:
        return jnp.zeros_like(x)
    return jnp.where(_kept(key, p, shape), x / (1 - p), 0)


def _kept(key: jax.Array, p: float, shape: tuple[int, ...]) -> jax.Array:
    """A mask of what is not dropped.

    Each number that the generator makes decides twice, by 16 bits: drawing is most of the work.
    """
    size = math.prod(shape)
    bits = jax.random.bits(key, ((size + 1) // 2,), jnp.uint32)
    limit = round((1 - p) * 2**16)
    halves = jnp.concatenate([bits & (2**16 - 1), bits >> 16])
    return (halves < limit)[:size].reshape(shape)


def _by_channel(x: jax.Array) -> tuple[int, ...]:
    """The shape of a mask for whole channels."""
    return (*x.shape[:2], *[1] * (x.ndim - 2))


@operator("aten.dropout.default")
def dropout(call: Call, x: jax.Array, p: float, train: bool) -> jax.Array:
    return dropped(call.key, x, p) if train and p > 0 else x


@operator("aten.native_dropout.default")
def native_dropout(
    call: Call, x: jax.Array, p: float, train: bool | None
) -> tuple[jax.Array, jax.Array]:
    if train is False or p == 0:
        return x, jnp.ones(x.shape, bool)
    kept = _kept(call.key, p, x.shape)
    return jnp.where(kept, x / (1 - p), 0) if p < 1 else jnp.zeros_like(x), kept


@operator("aten.feature_dropout.default")
def feature_dropout(call: Call, x: jax.Array, p: float, train: bool) -> jax.Array:
    return _dropped(call.key, x, p, _by_channel(x)) if train and p > 0 else x


@operator("aten.alpha_dropout.default")
def alpha_dropout(call: Call, x: jax.Array, p: float, train: bool) -> jax.Array:
    return _saturated(call.key, x, p, x.shape) if train and p > 0 else x


@operator("aten.feature_alpha_dropout.default")
def feature_alpha_dropout(call: Call, x: jax.Array, p: float, train: bool) -> jax.Array:
    return _saturated(call.key, x, p, _by_channel(x)) if train and p > 0 else x


def _saturated(key: jax.Array, x: jax.Array, p: float, shape: tuple[int, ...]) -> jax.Array:
    """Dropout that keeps the mean and the variance of what SELU gives."""
    if p == 1:
        return jnp.zeros_like(x)
    scale = 1 / math.sqrt((_SATURATED**2 * p + 1) * (1 - p))
    kept = _kept(key, p, shape)
    return (jnp.where(kept, x, _SATURATED) - _SATURATED * p) * scale
