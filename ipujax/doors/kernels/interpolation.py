"""Weights of interpolation, and the resizing of one dimension."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Line = np.ndarray[Any, Any]


def cubic_pieces(x: Any, a: float) -> tuple[Any, Any]:
    """Returns the cubic weights at distances below 1, and from 1 to 2 (Keys, 1981)."""
    return ((a + 2) * x - (a + 3)) * x * x + 1, ((x - 5) * x + 8) * x * a - 4 * a


def cubic_weights(distance: Any, a: float) -> Any:
    """Returns the weights of cubic convolution at some distances (Keys, 1981)."""
    x = abs(distance)
    near, far = cubic_pieces(x, a)
    return (x <= 1) * near + ((x > 1) & (x < 2)) * far


def triangle_weights(distance: Line) -> Line:
    """Returns the weights of linear interpolation at some distances."""
    return np.maximum(0, 1 - np.abs(distance))


def apply_interpolation_matrix(x: jax.Array, axis: int, matrix: Line) -> jax.Array:
    """Multiplies an axis by the weights of its old elements for each new one, [new, old]."""
    result = jnp.tensordot(x, jnp.asarray(matrix, x.dtype), (axis, 1))
    return jnp.moveaxis(result, -1, axis)


def take_nearest(x: jax.Array, axis: int, old_indices: Line) -> jax.Array:
    """Takes elements along an axis; a whole number of copies of each is a repetition."""
    new, old = len(old_indices), x.shape[axis]
    if new % old == 0 and (old_indices == np.arange(new) // (new // old)).all():
        return jnp.repeat(x, new // old, axis)
    return jnp.take(x, old_indices, axis, mode="clip")
