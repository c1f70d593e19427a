"""Pooling."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.frontends.pytorch.operators.axes import each_of
from ipujax.frontends.pytorch.operators.table import operator

Ints = Sequence[int]


@dc.dataclass(frozen=True)
class _Windows:
    """Where windows are along one dimension: `count` of them, in a dimension of `size`."""

    size: int
    kernel: int
    stride: int
    pad: int
    dilation: int
    count: int

    @property
    def pads(self) -> tuple[int, int]:
        """Before and after; what `ceil_mode` needs more is after."""
        end = (self.count - 1) * self.stride + self.dilation * (self.kernel - 1) + 1
        return self.pad, max(end - self.size - self.pad, 0)

    @property
    def indices(self) -> np.ndarray[Any, Any]:
        """Of the elements of each window [count, kernel]; some may be outside."""
        starts = np.arange(self.count) * self.stride - self.pad
        return starts[:, None] + np.arange(self.kernel) * self.dilation


def _windows(
    sizes: Ints,
    kernel: Ints,
    stride: Ints = (),
    padding: Ints = (0,),
    dilation: Ints = (1,),
    ceil_mode: bool = False,
) -> list[_Windows]:
    """Of each dimension, from the arguments of PyTorch's pools; strides are kernels by default."""
    count = len(sizes)
    kernel, padding, dilation = (each_of(v, count) for v in (kernel, padding, dilation))
    stride = each_of(stride, count) if stride else kernel
    found: list[_Windows] = []
    for size, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        room = size + 2 * p - d * (k - 1) - 1
        number = (-(-room // s) if ceil_mode else room // s) + 1
        # A window must begin inside of the image, or of the padding before it.
        if ceil_mode and (number - 1) * s >= size + p:
            number -= 1
        found.append(_Windows(size, k, s, p, d, number))
    return found


def _reduced(x: jax.Array, windows: Sequence[_Windows], start: Any, reduce: Any) -> jax.Array:
    """`lax.reduce_window` over the last dimensions."""
    rest = (1,) * (x.ndim - len(windows))
    return jax.lax.reduce_window(
        x, start, reduce, (*rest, *(w.kernel for w in windows)),
        (*rest, *(w.stride for w in windows)),
        (*((0, 0) for _ in rest), *(w.pads for w in windows)),
    )  # fmt: skip


def _lowest(dtype: Any) -> Any:
    return -jnp.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min


def _max_pools(count: int) -> None:
    """Registers those over `count` dimensions."""

    @operator(f"aten.max_pool{count}d.default")
    def max_pool(x: jax.Array, *how: Any) -> jax.Array:
        return _largest(x, _windows(x.shape[-count:], *how))

    @operator(f"aten.max_pool{count}d_with_indices.default")
    def max_pool_with_indices(x: jax.Array, *how: Any) -> tuple[jax.Array, jax.Array]:
        windows = _windows(x.shape[-count:], *how)
        indices = _picked(jax.lax.stop_gradient(x), *_flat(windows))[1]
        return _largest(x, windows), indices

    @operator(f"aten.adaptive_max_pool{count}d.default")
    def adaptive_max_pool(x: jax.Array, output_size: Ints) -> tuple[jax.Array, jax.Array]:
        sizes = x.shape[-count:]
        parts = [_parts(size, o) for size, o in zip(sizes, output_size, strict=True)]
        return _picked(x, *_crossed(parts, sizes))


def _largest(x: jax.Array, windows: Sequence[_Windows]) -> jax.Array:
    if any(w.dilation != 1 for w in windows):  # which JAX cannot differentiate
        return _picked(x, *_flat(windows))[0]
    return _reduced(x, windows, _lowest(x.dtype), jax.lax.max)


@operator("aten.max_pool2d_with_indices_backward.default")
def max_pool_backward(
    cotangents: jax.Array,
    x: jax.Array,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
    indices: jax.Array,
) -> jax.Array:
    """The sums of the cotangents of all windows that have an element as their largest."""
    images = math.prod(x.shape[:-2])
    lines = (images, math.prod(indices.shape[-2:]))
    sums = jnp.zeros((images, math.prod(x.shape[-2:])), x.dtype)
    where = jnp.arange(images)[:, None], indices.reshape(lines)
    return sums.at[where].add(cotangents.reshape(lines)).reshape(x.shape)


def _unpools(count: int) -> None:
    """Registers those over `count` dimensions."""

    @operator(f"aten.max_unpool{count}d.default")
    def max_unpool(x: jax.Array, indices: jax.Array, output_size: Ints, *_: Ints) -> jax.Array:
        rest = x.shape[:-count]
        lines = x.reshape(math.prod(rest), -1)
        rows = jnp.arange(len(lines))[:, None]
        places = jnp.zeros((len(lines), math.prod(output_size)), x.dtype)
        places = places.at[rows, indices.reshape(lines.shape)]
        # Of several values in one place the last one stays; PyTorch's derivative has them all.
        sums = places.add(lines)
        last = places.set(jax.lax.stop_gradient(lines))
        return (last + (sums - jax.lax.stop_gradient(sums))).reshape(*rest, *output_size)


def _fractional_max_pools(count: int) -> None:
    """Registers those over `count` dimensions."""

    @operator(f"aten.fractional_max_pool{count}d.default")
    def fractional_max_pool(
        x: jax.Array, kernel_size: Ints, output_size: Ints, samples: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        is_batch = x.ndim == count + 2
        batch = x if is_batch else x[None]
        sizes = x.shape[-count:]

        def of_image(image: jax.Array, sample: jax.Array) -> tuple[jax.Array, jax.Array]:
            # The samples are of the dimensions from the last to the first.
            each = zip(sizes, each_of(kernel_size, count), output_size, sample[::-1], strict=True)
            parts = [_fractional_parts(*one) for one in each]
            return _picked(image, *_crossed(parts, sizes))

        values, indices = jax.vmap(jax.vmap(of_image))(batch, samples)
        return (values, indices) if is_batch else (values[0], indices[0])


def _fractional_parts(size: int, kernel: int, count: int, sample: Any) -> jax.Array:
    steps = jnp.arange(count)
    if count > 1:
        alpha = jnp.float32((size - kernel) / (count - 1))
        starts = ((steps + sample) * alpha).astype(int) - (sample * alpha).astype(int)
        starts = jnp.where(steps == count - 1, size - kernel, starts)
    else:
        starts = jnp.full((1,), size - kernel)
    return starts[:, None] + jnp.arange(kernel)


def _parts(size: int, count: int) -> np.ndarray[Any, Any]:
    """Indices of the elements of equal parts [count, longest]; -1 fills up shorter ones."""
    starts = np.arange(count) * size // count
    ends = -(-(np.arange(count) + 1) * size // count)
    indices = starts[:, None] + np.arange(max(ends - starts, default=1))
    return np.where(indices < ends[:, None], indices, -1)


def _flat(windows: Sequence[_Windows]) -> tuple[Any, tuple[int, ...]]:
    return _crossed([w.indices for w in windows], tuple(w.size for w in windows))


def _crossed(parts: Sequence[Any], sizes: Ints) -> tuple[Any, tuple[int, ...]]:
    """Windows of several dimensions from those of each.

    Returns:
      The flat indices of their elements [windows, elements], -1 for those that are outside; and
      how many windows there are along each dimension.
    """
    flat: Any = np.zeros((1, 1), np.int32)
    for indices, size in zip(parts, sizes, strict=True):
        is_inside = (flat[:, None, :, None] >= 0) & (indices >= 0)[None, :, None]
        is_inside = is_inside & (indices < size)[None, :, None]
        both = flat[:, None, :, None] * size + indices[None, :, None]
        rows, columns = flat.shape[0] * len(indices), flat.shape[1] * indices.shape[1]
        # Those that are known stay constants of the program.
        where: Any = jnp.where if isinstance(both, jax.Array) else np.where
        flat = where(is_inside, both, -1).reshape(rows, columns)
    return flat, tuple(len(indices) for indices in parts)


def _picked(x: jax.Array, flat: Any, shape: Ints) -> tuple[jax.Array, jax.Array]:
    """The largest elements of windows and their flat indices; the first of equal ones."""
    rest = x.shape[: x.ndim - len(shape)]
    lines = x.reshape(*rest, math.prod(x.shape[x.ndim - len(shape) :]))
    elements = jnp.where(flat >= 0, jnp.take(lines, flat, axis=-1), _lowest(x.dtype))
    best = jnp.argmax(jax.lax.stop_gradient(elements), -1, keepdims=True)
    values = jnp.take_along_axis(elements, best, -1)[..., 0]
    indices = jnp.take_along_axis(jnp.broadcast_to(flat, elements.shape), best, -1)[..., 0]
    return values.reshape(*rest, *shape), indices.reshape(*rest, *shape)


def _average_pools(count: int) -> None:
    """Registers those over `count` dimensions."""

    @operator(f"aten.avg_pool{count}d.default")
    def avg_pool(
        x: jax.Array,
        kernel_size: Ints,
        stride: Ints = (),
        padding: Ints = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> jax.Array:
        windows = _windows(x.shape[-count:], kernel_size, stride, padding, ceil_mode=ceil_mode)
        zero = 0.0 if jnp.issubdtype(x.dtype, jnp.floating) else 0
        sums = _reduced(x, windows, zero, jax.lax.add)
        if divisor_override is not None:
            return sums / divisor_override
        return sums / _divisors(windows, count_include_pad).astype(np.float32)

    @operator(f"aten.adaptive_avg_pool{count}d.default", f"aten._adaptive_avg_pool{count}d.default")
    def adaptive_avg_pool(x: jax.Array, output_size: Ints) -> jax.Array:
        for axis, output in zip(range(x.ndim - count, x.ndim), output_size, strict=True):
            if output != x.shape[axis]:
                x = _averaged(x, axis, output)
        return x


def _divisors(windows: Sequence[_Windows], with_pads: bool) -> np.ndarray[Any, Any]:
    """How many elements the windows have, with the padding that was asked for or without."""
    counts: Any = np.ones(())
    for w in windows:
        pad = w.pad if with_pads else 0
        inside = ((w.indices >= -pad) & (w.indices < w.size + pad)).sum(1)
        counts = counts[..., None] * inside
    return counts


def _averaged(x: jax.Array, axis: int, count: int) -> jax.Array:
    size = x.shape[axis]
    if count and size % count == 0:
        return x.reshape(*x.shape[:axis], count, size // count, *x.shape[axis + 1 :]).mean(axis + 1)
    parts = _parts(size, count)
    weights = (parts[:, :, None] == np.arange(size)).any(1) / (parts >= 0).sum(1, keepdims=True)
    result = jnp.tensordot(x, jnp.asarray(weights, x.dtype), (axis, 1))
    return jnp.moveaxis(result, -1, axis)


for _count in (1, 2, 3):
    _max_pools(_count)
    _unpools(_count)
    _fractional_max_pools(_count)
    _average_pools(_count)
