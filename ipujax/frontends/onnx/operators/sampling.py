"""Images between their elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

Array = jax.Array
Taps = Sequence[tuple[Array, Array]]
"""Places of elements along a dimension, whole numbers as floats, and their weights."""
Padded = Callable[[Array, int, int], tuple[Array, Array]]
"""Gives for places along a dimension, its number and its size, places that are inside, and which
of them count."""


def linear_taps(places: Array) -> Taps:
    """The two elements around each place."""
    low = jnp.floor(places)
    share = places - low
    return [(low, 1 - share), (low + 1, share)]


def cubic_taps(places: Array, a: float = -0.75) -> Taps:
    """The four elements around each place, by cubic convolution."""
    low = jnp.floor(places)
    share = places - low
    return [(low + tap, cubic(share - tap, a)) for tap in (-1, 0, 1, 2)]


def cubic(distance: Array, a: float) -> Array:
    """The kernel of cubic convolution (Keys, 1981)."""
    x = abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return (x <= 1) * near + ((x > 1) & (x < 2)) * far


def zeros_outside(places: Array, axis: int, size: int) -> tuple[Array, Array]:
    """Counts what is inside of the image alone."""
    return jnp.clip(places, 0, size - 1), (places >= 0) & (places < size)


def sampled(image: Array, taps: Sequence[Taps], padded: Padded = zeros_outside) -> Array:
    """Weighted sums of elements of an image.

    Args:
      image: [channels, sizes...].
      taps: for each of the sizes, places and weights of one shape [...].
      padded: what is done with places outside.

    Returns:
      [channels, ...].
    """
    sizes = image.shape[1:]
    inside = [
        [(*padded(place, axis, size), weight) for place, weight in taps[axis]]
        for axis, size in enumerate(sizes)
    ]
    lines = image.reshape(image.shape[0], -1)
    total: Array | None = None
    for corner in itertools.product(*inside):
        flat, factor = jnp.zeros((), jnp.int32), jnp.ones((), lines.dtype)
        for (place, counts, weight), size in zip(corner, sizes, strict=True):
            flat = flat * size + jax.lax.stop_gradient(place).astype(jnp.int32)
            factor = factor * jnp.where(counts, weight, 0)
        part = jnp.take(lines, flat, 1, mode="clip") * factor.astype(lines.dtype)
        total = part if total is None else total + part
    return lines if total is None else total
