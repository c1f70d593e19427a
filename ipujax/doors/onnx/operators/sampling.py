"""Interpolation of images at positions between their elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from ipujax.doors.kernels import cubic_weights

Array = jax.Array
Taps = Sequence[tuple[Array, Array]]
"""Element positions along a dimension, integers as floats, with their weights."""
PadPositions = Callable[[Array, int, int], tuple[Array, Array]]
"""A function from positions along a dimension, its number and size to positions inside, and to
which of them are counted."""


def linear_taps(positions: Array) -> Taps:
    """Returns the two elements around each position, with linear weights."""
    low = jnp.floor(positions)
    fraction = positions - low
    return [(low, 1 - fraction), (low + 1, fraction)]


def cubic_taps(positions: Array, a: float = -0.75) -> Taps:
    """Returns the four elements around each position, with cubic weights."""
    low = jnp.floor(positions)
    fraction = positions - low
    return [(low + tap, cubic_weights(fraction - tap, a)) for tap in (-1, 0, 1, 2)]


def clip_with_zeros_outside(positions: Array, axis: int, size: int) -> tuple[Array, Array]:
    """Clips positions to the image, and counts only those inside of it."""
    return jnp.clip(positions, 0, size - 1), (positions >= 0) & (positions < size)


def sample_image_at_taps(
    image: Array, taps: Sequence[Taps], pad: PadPositions = clip_with_zeros_outside
) -> Array:
    """Returns weighted sums of elements of an image.

    Args:
      image: [channels, sizes...].
      taps: for each dimension, positions and weights of one shape [...].
      pad: moves positions outside of the image inside, or excludes them.

    Returns:
      [channels, ...].
    """
    sizes = image.shape[1:]
    padded_taps = [
        [(*pad(position, axis, size), weight) for position, weight in taps[axis]]
        for axis, size in enumerate(sizes)
    ]
    lines = image.reshape(image.shape[0], -1)
    total: Array | None = None
    for corner in itertools.product(*padded_taps):
        flat, factor = jnp.zeros((), jnp.int32), jnp.ones((), lines.dtype)
        for (place, counts, weight), size in zip(corner, sizes, strict=True):
            flat = flat * size + jax.lax.stop_gradient(place).astype(jnp.int32)
            factor = factor * jnp.where(counts, weight, 0)
        part = jnp.take(lines, flat, 1, mode="clip") * factor.astype(lines.dtype)
        total = part if total is None else total + part
    return lines if total is None else total
