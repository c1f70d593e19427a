"""Means and variances that normalization stands on."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

Array = jax.Array


def widen_for_statistics(x: Array) -> Array:
    """Returns an array in at least float32: float16 is too coarse for statistics."""
    return jnp.asarray(x, jnp.promote_types(x.dtype, jnp.float32))


def shape_per_channel(values: Array, rank: int) -> Array:
    """Shapes one value for each channel (axis 1) to broadcast with an array of some rank."""
    return jnp.reshape(values, (-1, *[1] * (rank - 2)))


def deviations_from_mean(x: Array, axes: Sequence[int]) -> tuple[Array, Array, Array]:
    """Returns the deviations from the mean, the mean and the biased variance, with `keepdims`."""
    mean = jnp.mean(x, tuple(axes), keepdims=True)
    deviations = x - mean
    return deviations, mean, jnp.mean(jnp.square(deviations), tuple(axes), keepdims=True)
