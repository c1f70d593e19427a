"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Call
from ipujax.frontends.onnx.operators.table import operator
from ipujax.frontends.onnx.operators.windows import Ints, Windows, flat_indices, windows_of

Array = jax.Array


def lowest(dtype: Any) -> Any:
    """The least value of a dtype."""
    return -jnp.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min


def _reduced(x: Array, windows: Sequence[Windows], start: Any, reduce: Any) -> Array:
    """`lax.reduce_window` over all dimensions but the first two."""
    return jax.lax.reduce_window(
        jnp.asarray(x), np.asarray(start, x.dtype), reduce,
        (1, 1, *(w.kernel for w in windows)), (1, 1, *(w.stride for w in windows)),
        ((0, 0), (0, 0), *(w.pads for w in windows)),
        window_dilation=(1, 1, *(w.dilation for w in windows)),
    )  # fmt: skip


@operator("MaxPool")
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
    """The largest elements of windows, and their indices in all of the input."""
    windows = windows_of(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    with_indices = len(call.node.results) > 1
    is_dilated = any(w.dilation != 1 for w in windows)  # which JAX cannot differentiate
    if not with_indices and not (is_dilated and jnp.issubdtype(x.dtype, jnp.floating)):
        return (_reduced(x, windows, lowest(x.dtype), jax.lax.max),)
    return _picked(x, windows, storage_order)


def _picked(x: Array, windows: Sequence[Windows], storage_order: int) -> tuple[Array, Array]:
    """The largest elements and their indices; the first of equal ones."""
    sizes, counts = x.shape[2:], [w.count for w in windows]
    flat = flat_indices([w.indices for w in windows], sizes)
    lines = jnp.reshape(x, (*x.shape[:2], -1))
    elements = jnp.where(flat >= 0, jnp.take(lines, flat, -1, mode="clip"), lowest(x.dtype))
    best = jnp.argmax(jax.lax.stop_gradient(elements), -1, keepdims=True)
    values = jnp.take_along_axis(elements, best, -1)[..., 0]
    order = np.arange(math.prod(sizes)).reshape(sizes, order="F" if storage_order else "C")
    places = np.where(flat >= 0, order.reshape(-1)[flat], -1)
    places = jnp.broadcast_to(places.astype(np.int32), elements.shape)
    indices = jnp.take_along_axis(places, best, -1)[..., 0]
    images = np.arange(math.prod(x.shape[:2]), dtype=np.int32).reshape(*x.shape[:2], 1)
    indices = indices + images * math.prod(sizes)
    shape = (*x.shape[:2], *counts)
    return values.reshape(shape), indices.reshape(shape)


@operator("MaxUnpool", static=("output_shape",))
def max_unpool(
    x: Array,
    indices: Array,
    output_shape: Any = None,
    kernel_shape: Ints = (),
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    """Elements at the places that `MaxPool` tells, in an image of the size that it was given."""
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
    room = [(0, int(new) - old) for new, old in zip(output_shape, shape, strict=True)]
    return jax.lax.pad(image, np.zeros((), x.dtype), [(*r, 0) for r in room])


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
    windows = windows_of(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    return _reduced(x, windows, 0, jax.lax.add) / _counts(windows, count_include_pad).astype(
        x.dtype
    )


def _counts(windows: Sequence[Windows], with_pads: int) -> np.ndarray[Any, Any]:
    """How many elements the windows have, with the padding that was asked for or without."""
    counts: Any = np.ones((1, 1))
    for w in windows:
        before, after = (w.before, w.after) if with_pads else (0, 0)
        inside = ((w.indices >= -before) & (w.indices < w.size + after)).sum(1)
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
    windows = windows_of(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    return _root(_reduced(jnp.abs(x) ** p, windows, 0, jax.lax.add), p)


def _root(powers: Array, p: int) -> Array:
    """The root of sums of powers, whose derivative at zero is zero."""
    is_zero = powers == 0
    return jnp.where(is_zero, 0, jnp.where(is_zero, 1, powers) ** (1 / p))


def _axes(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@operator("GlobalAveragePool")
def global_average_pool(x: Array) -> Array:
    return jnp.mean(x, _axes(x), keepdims=True)


@operator("GlobalMaxPool")
def global_max_pool(x: Array) -> Array:
    return jnp.max(x, _axes(x), keepdims=True)


@operator("GlobalLpPool")
def global_lp_pool(x: Array, p: int = 2) -> Array:
    return _root(jnp.sum(jnp.abs(x) ** p, _axes(x), keepdims=True), p)
