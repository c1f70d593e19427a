"""ONNX pooling operators."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Call, Operand
from ipujax.doors.kernels import (
    count_window_elements,
    lowest_value,
    max_with_indices,
    reduce_windows,
)
from ipujax.doors.onnx.operators.table import operator
from ipujax.doors.onnx.operators.windows import Ints, plan_windows

Array = jax.Array


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
        return (reduce_windows(x, windows, lowest_value(x.dtype), jax.lax.max),)
    values, indices = max_with_indices(x, windows)
    sizes = x.shape[2:]
    if storage_order:  # as if the first dimension was contiguous
        order = np.arange(math.prod(sizes), dtype=np.int32).reshape(sizes, order="F")
        indices = jnp.take(order, indices, mode="clip")
    images = np.arange(math.prod(x.shape[:2]), dtype=np.int32) * math.prod(sizes)
    images = images.reshape(*x.shape[:2], *[1] * len(sizes)).astype(np.int32)
    return values, indices + images


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
    return (
        reduce_windows(x, windows, 0, jax.lax.add)
        / count_window_elements(windows, bool(count_include_pad)).astype(x.dtype)[None, None]
    )


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
    return _smooth_root(reduce_windows(jnp.abs(x) ** p, windows, 0, jax.lax.add), p)


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
