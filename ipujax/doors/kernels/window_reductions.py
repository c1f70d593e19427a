"""Sums, maxima and counts of the elements of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.kernels.window_kernels import Windows

Array = jax.Array


def lowest_value(dtype: Any) -> Any:
    """Returns the lowest value of a dtype."""
    return -jnp.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min


def reduce_windows(x: Array, windows: Sequence[Windows], initial: Any, reduce: Any) -> Array:
    """Reduces windows over the last axes, by `lax.reduce_window`."""
    ones = (1,) * (x.ndim - len(windows))
    return jax.lax.reduce_window(
        jnp.asarray(x), np.asarray(initial, x.dtype), reduce,
        (*ones, *(w.kernel for w in windows)), (*ones, *(w.stride for w in windows)),
        (*((0, 0) for _ in ones), *(w.pads for w in windows)),
        window_dilation=(*ones, *(w.dilation for w in windows)),
    )  # fmt: skip


def count_window_elements(windows: Sequence[Windows], counts_padding: bool) -> np.ndarray[Any, Any]:
    """Returns the number of elements of each window, with explicit padding or without."""
    counts: Any = np.ones(())
    for w in windows:
        left_pad, right_pad = (w.before, w.after) if counts_padding else (0, 0)
        inside = ((w.indices >= -left_pad) & (w.indices < w.size + right_pad)).sum(1)
        counts = counts[..., None] * inside
    return counts


def cross_window_indices(indices_per_dimension: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Combines the window indices of several dimensions to flat indices.

    Args:
      indices_per_dimension: the element indices [windows, elements] along each dimension.
      sizes: the sizes of the dimensions.

    Returns:
      The flat indices [windows, elements], -1 for those outside.
    """
    flat: Any = np.zeros((1, 1), np.int32)
    for indices, size in zip(indices_per_dimension, sizes, strict=True):
        is_inside = (flat[:, None, :, None] >= 0) & ((indices >= 0) & (indices < size))[:, None]
        combined = flat[:, None, :, None] * size + indices[:, None]
        # Indices known at trace time stay constants of the program.
        select_where: Any = jnp.where if isinstance(combined, Array) else np.where
        rows, columns = flat.shape[0] * len(indices), flat.shape[1] * indices.shape[1]
        flat = select_where(is_inside, combined, -1).reshape(rows, columns)
    return flat


def max_with_indices(x: Array, windows: Sequence[Windows]) -> tuple[Array, Array]:
    """Returns the maxima of windows over the last axes, and their flat indices."""
    flat_indices = cross_window_indices([w.indices for w in windows], [w.size for w in windows])
    return max_of_elements(x, flat_indices, [w.count for w in windows])


def max_of_elements(x: Array, flat_indices: Any, shape: Sequence[int]) -> tuple[Array, Array]:
    """Returns the maxima of some elements and their flat indices; of equal ones the first.

    Args:
      x: `[..., *image]`.
      flat_indices: the indices [windows, elements] in the flat image, -1 for those outside.
      shape: the number of windows along each dimension.

    Returns:
      `[..., *shape]`, twice.
    """
    leading_shape = x.shape[: x.ndim - len(shape)]
    flat_images = jnp.reshape(x, (*leading_shape, math.prod(x.shape[x.ndim - len(shape) :])))
    elements = jnp.where(
        flat_indices >= 0,
        jnp.take(flat_images, flat_indices, -1, mode="clip"),
        lowest_value(x.dtype),
    )
    best = jnp.argmax(jax.lax.stop_gradient(elements), -1, keepdims=True)
    values = jnp.take_along_axis(elements, best, -1)[..., 0]
    indices = jnp.take_along_axis(jnp.broadcast_to(flat_indices, elements.shape), best, -1)[..., 0]
    return values.reshape(*leading_shape, *shape), indices.reshape(*leading_shape, *shape)
