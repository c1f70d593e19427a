"""PyTorch pooling operators."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ipujax.doors.graphs import Operand
from ipujax.doors.kernels import (
    Windows,
    apply_interpolation_matrix,
    count_window_elements,
    cross_window_indices,
    lowest_value,
    max_of_elements,
    max_with_indices,
    plan_windows,
    reduce_windows,
)
from ipujax.doors.torch.operators.axes import expand_per_dimension
from ipujax.doors.torch.operators.table import operator

Ints = Sequence[int]


def _plan_pool_windows(
    sizes: Ints,
    kernel: Ints,
    stride: Ints = (),
    padding: Ints = (0,),
    dilation: Ints = (1,),
    ceil_mode: bool = False,
) -> list[Windows]:
    """Returns the windows of each dimension; strides are kernels by default."""
    count = len(sizes)
    kernel, strides, padding, dilation = (
        expand_per_dimension(v, count) for v in (kernel, stride or kernel, padding, dilation)
    )
    return plan_windows(sizes, kernel, strides, [(p, p) for p in padding], dilation, ceil_mode)


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
        indices = max_with_indices(jax.lax.stop_gradient(x), windows)[1]
        return _max_of_windows(x, windows), indices

    @operator(f"aten.adaptive_max_pool{count}d.default")
    def adaptive_max_pool(x: jax.Array, output_size: Ints) -> tuple[jax.Array, jax.Array]:
        sizes = x.shape[-count:]
        parts = [
            _adaptive_window_indices(size, o) for size, o in zip(sizes, output_size, strict=True)
        ]
        return max_of_elements(x, cross_window_indices(parts, sizes), output_size)


def _max_of_windows(x: jax.Array, windows: Sequence[Windows]) -> jax.Array:
    if any(w.dilation != 1 for w in windows):  # JAX cannot differentiate dilated windows
        return max_with_indices(x, windows)[0]
    return reduce_windows(x, windows, lowest_value(x.dtype), jax.lax.max)


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
            return max_of_elements(image, cross_window_indices(window_indices, sizes), output_size)

        values, indices = jax.vmap(jax.vmap(pool_image))(batch, samples)
        return (values, indices) if is_batch else (values[0], indices[0])


def _fractional_window_indices(size: int, kernel: int, count: int, sample: ArrayLike) -> jax.Array:
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
        sums = reduce_windows(x, windows, 0, jax.lax.add)
        if divisor_override is not None:
            return sums / divisor_override
        return sums / count_window_elements(windows, count_include_pad).astype(np.float32)

    names = ("adaptive_avg_pool", "_adaptive_avg_pool")[: 1 if count == 1 else 2]

    @operator(*(f"aten.{name}{count}d.default" for name in names))
    def adaptive_avg_pool(x: jax.Array, output_size: Ints) -> jax.Array:
        for axis, output in zip(range(x.ndim - count, x.ndim), output_size, strict=True):
            if output != x.shape[axis]:
                x = _average_along_axis(x, axis, output)
        return x


def _average_along_axis(x: jax.Array, axis: int, count: int) -> jax.Array:
    size = x.shape[axis]
    if count and size % count == 0:
        return x.reshape(*x.shape[:axis], count, size // count, *x.shape[axis + 1 :]).mean(axis + 1)
    window_indices = _adaptive_window_indices(size, count)
    weights = (window_indices[:, :, None] == np.arange(size)).any(1) / (window_indices >= 0).sum(
        1, keepdims=True
    )
    return apply_interpolation_matrix(x, axis, weights)


for _count in (1, 2, 3):
    _register_max_pools(_count)
    _register_average_pools(_count)
for _count in (2, 3):
    _register_fractional_max_pools(_count)
