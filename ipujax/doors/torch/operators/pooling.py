"""PyTorch pooling operators."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Operand
from ipujax.doors.torch.operators.axes import expand_per_dimension
from ipujax.doors.torch.operators.table import operator

Ints = Sequence[int]


@dc.dataclass(frozen=True)
class _PoolWindows:
    """The windows of a pool along one dimension: `count` windows in a dimension of `size`."""

    size: int
    kernel: int
    stride: int
    pad: int
    dilation: int
    count: int

    @property
    def pads(self) -> tuple[int, int]:
        """The padding before and after; `ceil_mode` may add some after."""
        end = (self.count - 1) * self.stride + self.dilation * (self.kernel - 1) + 1
        return self.pad, max(end - self.size - self.pad, 0)

    @property
    def indices(self) -> np.ndarray:
        """The element indices of each window [count, kernel]; some may be outside."""
        starts = np.arange(self.count) * self.stride - self.pad
        return starts[:, None] + np.arange(self.kernel) * self.dilation


def _plan_pool_windows(
    sizes: Ints,
    kernel: Ints,
    stride: Ints = (),
    padding: Ints = (0,),
    dilation: Ints = (1,),
    ceil_mode: bool = False,
) -> list[_PoolWindows]:
    """Returns the windows of each dimension; strides are kernels by default."""
    count = len(sizes)
    kernel, padding, dilation = (
        expand_per_dimension(v, count) for v in (kernel, padding, dilation)
    )
    stride = expand_per_dimension(stride, count) if stride else kernel
    windows: list[_PoolWindows] = []
    for size, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        last_start = size + 2 * p - d * (k - 1) - 1
        number = (-(-last_start // s) if ceil_mode else last_start // s) + 1
        # A window must begin inside the image or inside the padding before it.
        if ceil_mode and (number - 1) * s >= size + p:
            number -= 1
        windows.append(_PoolWindows(size, k, s, p, d, number))
    return windows


def _reduce_pool_windows(
    x: jax.Array, windows: Sequence[_PoolWindows], initial: Operand, reduce: Callable[..., Operand]
) -> jax.Array:
    """Reduces windows over the last axes, by `lax.reduce_window`."""
    ones_before = (1,) * (x.ndim - len(windows))
    return jax.lax.reduce_window(
        x, initial, reduce, (*ones_before, *(w.kernel for w in windows)),
        (*ones_before, *(w.stride for w in windows)),
        (*((0, 0) for _ in ones_before), *(w.pads for w in windows)),
    )  # fmt: skip


def _lowest_value(dtype: Any) -> Operand:
    return -jnp.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min


def _register_max_pools(count: int) -> None:
    """Registers the max pools over `count` dimensions."""

    @operator(f"aten.max_pool{count}d.default")
    def max_pool(x: jax.Array, *window_arguments: Operand) -> jax.Array:
        return _max_of_windows(x, _plan_pool_windows(x.shape[-count:], *window_arguments))

    @operator(f"aten.max_pool{count}d_with_indices.default")
    def max_pool_with_indices(
        x: jax.Array, *window_arguments: Operand
    ) -> tuple[jax.Array, jax.Array]:
        windows = _plan_pool_windows(x.shape[-count:], *window_arguments)
        indices = _max_with_flat_indices(jax.lax.stop_gradient(x), *_flatten_windows(windows))[1]
        return _max_of_windows(x, windows), indices

    @operator(f"aten.adaptive_max_pool{count}d.default")
    def adaptive_max_pool(x: jax.Array, output_size: Ints) -> tuple[jax.Array, jax.Array]:
        sizes = x.shape[-count:]
        parts = [
            _adaptive_window_indices(size, o) for size, o in zip(sizes, output_size, strict=True)
        ]
        return _max_with_flat_indices(x, *_cross_window_indices(parts, sizes))


def _max_of_windows(x: jax.Array, windows: Sequence[_PoolWindows]) -> jax.Array:
    if any(w.dilation != 1 for w in windows):  # JAX cannot differentiate dilated windows
        return _max_with_flat_indices(x, *_flatten_windows(windows))[0]
    return _reduce_pool_windows(x, windows, _lowest_value(x.dtype), jax.lax.max)


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
    """Adds cotangents to the elements that were the maxima of windows."""
    images = math.prod(x.shape[:-2])
    flat_shape = (images, math.prod(indices.shape[-2:]))
    sums = jnp.zeros((images, math.prod(x.shape[-2:])), x.dtype)
    target_index = jnp.arange(images)[:, None], indices.reshape(flat_shape)
    return sums.at[target_index].add(cotangents.reshape(flat_shape)).reshape(x.shape)


def _register_max_unpools(count: int) -> None:
    """Registers the max unpool over `count` dimensions."""

    @operator(f"aten.max_unpool{count}d.default")
    def max_unpool(x: jax.Array, indices: jax.Array, output_size: Ints, *_: Ints) -> jax.Array:
        leading_shape = x.shape[:-count]
        flat_images = x.reshape(math.prod(leading_shape), -1)
        rows = jnp.arange(len(flat_images))[:, None]
        target = jnp.zeros((len(flat_images), math.prod(output_size)), x.dtype)
        target = target.at[rows, indices.reshape(flat_images.shape)]
        # The last of several values at one element stays; PyTorch's derivative covers all of them.
        sums = target.add(flat_images)
        last = target.set(jax.lax.stop_gradient(flat_images))
        return (last + (sums - jax.lax.stop_gradient(sums))).reshape(*leading_shape, *output_size)


def _register_fractional_max_pools(count: int) -> None:
    """Registers the fractional max pool over `count` dimensions."""

    @operator(f"aten.fractional_max_pool{count}d.default")
    def fractional_max_pool(
        x: jax.Array, kernel_size: Ints, output_size: Ints, samples: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        is_batch = x.ndim == count + 2
        batch = x if is_batch else x[None]
        sizes = x.shape[-count:]

        def pool_image(image: jax.Array, sample: jax.Array) -> tuple[jax.Array, jax.Array]:
            # The samples are ordered from the last dimension to the first.
            arguments_per_dimension = zip(
                sizes,
                expand_per_dimension(kernel_size, count),
                output_size,
                sample[::-1],
                strict=True,
            )
            window_indices = [
                _fractional_window_indices(*arguments) for arguments in arguments_per_dimension
            ]
            return _max_with_flat_indices(image, *_cross_window_indices(window_indices, sizes))

        values, indices = jax.vmap(jax.vmap(pool_image))(batch, samples)
        return (values, indices) if is_batch else (values[0], indices[0])


def _fractional_window_indices(size: int, kernel: int, count: int, sample: Any) -> jax.Array:
    steps = jnp.arange(count)
    if count > 1:
        alpha = jnp.float32((size - kernel) / (count - 1))
        starts = ((steps + sample) * alpha).astype(int) - (sample * alpha).astype(int)
        starts = jnp.where(steps == count - 1, size - kernel, starts)
    else:
        starts = jnp.full((1,), size - kernel)
    return starts[:, None] + jnp.arange(kernel)


def _adaptive_window_indices(size: int, count: int) -> np.ndarray:
    """Returns element indices of equal parts [count, longest]; -1 fills shorter parts."""
    starts = np.arange(count) * size // count
    ends = -(-(np.arange(count) + 1) * size // count)
    indices = starts[:, None] + np.arange(max(ends - starts, default=1))
    return np.where(indices < ends[:, None], indices, -1)


def _flatten_windows(windows: Sequence[_PoolWindows]) -> tuple[Operand, tuple[int, ...]]:
    return _cross_window_indices([w.indices for w in windows], tuple(w.size for w in windows))


def _cross_window_indices(
    indices_per_dimension: Sequence[Operand], sizes: Ints
) -> tuple[Operand, tuple[int, ...]]:
    """Combines the window indices of several dimensions to flat indices.

    Returns:
      The flat element indices [windows, elements], -1 for those outside; and the number of windows
      along each dimension.
    """
    flat: Operand = np.zeros((1, 1), np.int32)
    for indices, size in zip(indices_per_dimension, sizes, strict=True):
        is_inside = (flat[:, None, :, None] >= 0) & (indices >= 0)[None, :, None]
        is_inside = is_inside & (indices < size)[None, :, None]
        combined = flat[:, None, :, None] * size + indices[None, :, None]
        rows, columns = flat.shape[0] * len(indices), flat.shape[1] * indices.shape[1]
        # Indices known at trace time stay constants of the program.
        select_where: Operand = jnp.where if isinstance(combined, jax.Array) else np.where
        flat = select_where(is_inside, combined, -1).reshape(rows, columns)
    return flat, tuple(len(indices) for indices in indices_per_dimension)


def _max_with_flat_indices(
    x: jax.Array, flat_indices: Any, shape: Ints
) -> tuple[jax.Array, jax.Array]:
    """Returns the maxima of windows and their flat indices; of equal ones the first."""
    leading_shape = x.shape[: x.ndim - len(shape)]
    flat_images = x.reshape(*leading_shape, math.prod(x.shape[x.ndim - len(shape) :]))
    elements = jnp.where(
        flat_indices >= 0, jnp.take(flat_images, flat_indices, axis=-1), _lowest_value(x.dtype)
    )
    best = jnp.argmax(jax.lax.stop_gradient(elements), -1, keepdims=True)
    values = jnp.take_along_axis(elements, best, -1)[..., 0]
    indices = jnp.take_along_axis(jnp.broadcast_to(flat_indices, elements.shape), best, -1)[..., 0]
    return values.reshape(*leading_shape, *shape), indices.reshape(*leading_shape, *shape)


def _register_average_pools(count: int) -> None:
    """Registers the average pools over `count` dimensions."""

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
        windows = _plan_pool_windows(
            x.shape[-count:], kernel_size, stride, padding, ceil_mode=ceil_mode
        )
        zero = 0.0 if jnp.issubdtype(x.dtype, jnp.floating) else 0
        sums = _reduce_pool_windows(x, windows, zero, jax.lax.add)
        if divisor_override is not None:
            return sums / divisor_override
        return sums / _count_elements_of_windows(windows, count_include_pad).astype(np.float32)

    @operator(f"aten.adaptive_avg_pool{count}d.default", f"aten._adaptive_avg_pool{count}d.default")
    def adaptive_avg_pool(x: jax.Array, output_size: Ints) -> jax.Array:
        for axis, output in zip(range(x.ndim - count, x.ndim), output_size, strict=True):
            if output != x.shape[axis]:
                x = _average_along_axis(x, axis, output)
        return x


def _count_elements_of_windows(windows: Sequence[_PoolWindows], counts_padding: bool) -> np.ndarray:
    """Returns the number of elements of each window, with padding or without."""
    counts: Operand = np.ones(())
    for w in windows:
        pad = w.pad if counts_padding else 0
        inside = ((w.indices >= -pad) & (w.indices < w.size + pad)).sum(1)
        counts = counts[..., None] * inside
    return counts


def _average_along_axis(x: jax.Array, axis: int, count: int) -> jax.Array:
    size = x.shape[axis]
    if count and size % count == 0:
        return x.reshape(*x.shape[:axis], count, size // count, *x.shape[axis + 1 :]).mean(axis + 1)
    window_indices = _adaptive_window_indices(size, count)
    weights = (window_indices[:, :, None] == np.arange(size)).any(1) / (window_indices >= 0).sum(
        1, keepdims=True
    )
    result = jnp.tensordot(x, jnp.asarray(weights, x.dtype), (axis, 1))
    return jnp.moveaxis(result, -1, axis)


for _count in (1, 2, 3):
    _register_max_pools(_count)
    _register_max_unpools(_count)
    _register_fractional_max_pools(_count)
    _register_average_pools(_count)
