"""ONNX pooling operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Call, Operand
from ipujax.doors.onnx.operators.table import operator
from ipujax.doors.onnx.operators.windows import Ints, Windows, flat_indices, plan_windows

Array = jax.Array


def lowest_value(dtype: Any) -> Operand:
    """Returns the lowest value of a dtype."""
    return -jnp.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min


def _reduce_windows(
    x: Array, windows: Sequence[Windows], initial: Operand, reduce: Operand
) -> Array:
    """Reduces windows over all axes but the first two, by `lax.reduce_window`."""
    return jax.lax.reduce_window(
        jnp.asarray(x), np.asarray(initial, x.dtype), reduce,
        (1, 1, *(w.kernel for w in windows)), (1, 1, *(w.stride for w in windows)),
        ((0, 0), (0, 0), *(w.pads for w in windows)),
        window_dilation=(1, 1, *(w.dilation for w in windows)),
    )  # fmt: skip


@operator("MaxPool", takes_call=True)
def max_pool(
    call: Call,
    x: Array,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    kernel_shape: Ints = (),
    pads: Ints | None = None,
    storage_order: int = 0,
    strides: Ints | None = None,
) -> tuple[Array, ...]:
    """Returns the maxima of windows, and their flat indices in the input."""
    windows = plan_windows(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    with_indices = len(call.node.results) > 1
    is_dilated = any(w.dilation != 1 for w in windows)  # JAX cannot differentiate this
    if not with_indices and not (is_dilated and jnp.issubdtype(x.dtype, jnp.floating)):
        return (_reduce_windows(x, windows, lowest_value(x.dtype), jax.lax.max),)
    return _max_with_indices(x, windows, storage_order)


def _max_with_indices(
    x: Array, windows: Sequence[Windows], storage_order: int
) -> tuple[Array, Array]:
    """Returns the maxima of windows and their flat indices; of equal ones the first."""
    sizes, counts = x.shape[2:], [w.count for w in windows]
    flat_window_indices = flat_indices([w.indices for w in windows], sizes)
    flat_images = jnp.reshape(x, (*x.shape[:2], -1))
    elements = jnp.where(
        flat_window_indices >= 0,
        jnp.take(flat_images, flat_window_indices, -1, mode="clip"),
        lowest_value(x.dtype),
    )
    best = jnp.argmax(jax.lax.stop_gradient(elements), -1, keepdims=True)
    values = jnp.take_along_axis(elements, best, -1)[..., 0]
    order = np.arange(math.prod(sizes)).reshape(sizes, order="F" if storage_order else "C")
    element_indices = np.where(flat_window_indices >= 0, order.reshape(-1)[flat_window_indices], -1)
    element_indices = jnp.broadcast_to(element_indices.astype(np.int32), elements.shape)
    indices = jnp.take_along_axis(element_indices, best, -1)[..., 0]
    images = np.arange(math.prod(x.shape[:2]), dtype=np.int32).reshape(*x.shape[:2], 1)
    indices = indices + images * math.prod(sizes)
    shape = (*x.shape[:2], *counts)
    return values.reshape(shape), indices.reshape(shape)


@operator("MaxUnpool", static=("output_shape",))
def max_unpool(
    x: Array,
    indices: Array,
    output_shape: Operand = None,
    kernel_shape: Ints = (),
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    """Places elements at the indices from `MaxPool`, in an image of its input's size."""
    count = len(kernel_shape)
    strides, pads = strides or (1,) * count, pads or (0,) * (2 * count)
    sizes = [
        (size - 1) * strides[i] - pads[i] - pads[count + i] + kernel_shape[i]
        for i, size in enumerate(x.shape[2:])
    ]
    shape = (*x.shape[:2], *sizes)
    image = jnp.zeros(math.prod(shape), x.dtype)
    image = image.at[jnp.ravel(indices)].set(jnp.ravel(x)).reshape(shape)
    if output_shape is None:
        return image
    padding = [(0, int(new) - old) for new, old in zip(output_shape, shape, strict=True)]
    return jax.lax.pad(image, np.zeros((), x.dtype), [(*r, 0) for r in padding])


@operator("AveragePool")
def average_pool(
    x: Array,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Ints | None = None,
    kernel_shape: Ints = (),
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    windows = plan_windows(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    return _reduce_windows(x, windows, 0, jax.lax.add) / _count_window_elements(
        windows, count_include_pad
    ).astype(x.dtype)


def _count_window_elements(windows: Sequence[Windows], counts_padding: int) -> np.ndarray:
    """Returns the number of elements of each window, with explicit padding or without."""
    counts: Operand = np.ones((1, 1))
    for w in windows:
        pad_before, pad_after = (w.before, w.after) if counts_padding else (0, 0)
        inside = ((w.indices >= -pad_before) & (w.indices < w.size + pad_after)).sum(1)
        counts = counts[..., None] * inside
    return counts


@operator("LpPool")
def lp_pool(
    x: Array,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    kernel_shape: Ints = (),
    p: int = 2,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    windows = plan_windows(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    return _smooth_root(_reduce_windows(jnp.abs(x) ** p, windows, 0, jax.lax.add), p)


def _smooth_root(powers: Array, p: int) -> Array:
    """Returns the p-th root of sums of powers, with derivative zero at zero."""
    is_zero = powers == 0
    return jnp.where(is_zero, 0, jnp.where(is_zero, 1, powers) ** (1 / p))


def _spatial_axes(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@operator("GlobalAveragePool")
def global_average_pool(x: Array) -> Array:
    return jnp.mean(x, _spatial_axes(x), keepdims=True)


@operator("GlobalMaxPool")
def global_max_pool(x: Array) -> Array:
    return jnp.max(x, _spatial_axes(x), keepdims=True)


@operator("GlobalLpPool")
def global_lp_pool(x: Array, p: int = 2) -> Array:
    return _smooth_root(jnp.sum(jnp.abs(x) ** p, _spatial_axes(x), keepdims=True), p)
