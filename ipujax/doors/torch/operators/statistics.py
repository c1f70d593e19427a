"""PyTorch variances, medians, quantiles, modes and histograms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.doors.graphs import Operand
from ipujax.doors.torch.operators.axes import axes_to_reduce, select_along_axis
from ipujax.doors.torch.operators.copies import zero_with_derivative_of
from ipujax.doors.torch.operators.reductions import Dims
from ipujax.doors.torch.operators.table import operator
from ipujax.doors.torch.operators.vector_norms import root_with_zero_slope


def _variance_and_mean(
    x: jax.Array, dim: Dims = None, correction: float | None = None, keepdim: bool = False
) -> tuple[jax.Array, jax.Array]:
    """Returns the variance and the mean."""
    axes = axes_to_reduce(x, dim)
    count = math.prod(x.shape[axis] for axis in axes)
    mean = jnp.mean(x, axes, keepdims=True)
    squares = lax.square(lax.abs(x - mean)) if jnp.iscomplexobj(x) else lax.square(x - mean)
    freedom = jnp.asarray(max(count - (1 if correction is None else correction), 0), squares.dtype)
    variance = jnp.sum(squares, axes, keepdims=keepdim) / freedom
    return variance, mean if keepdim else mean.squeeze(axes)


_STATISTICS: dict[str, Callable[[jax.Array, jax.Array], Operand]] = {
    "var": lambda variance, mean: variance,
    "std": lambda variance, mean: root_with_zero_slope(variance),
    "var_mean": lambda variance, mean: (variance, mean),
    "std_mean": lambda variance, mean: (root_with_zero_slope(variance), mean),
}


def _register_statistic(name: str, combine: Callable[[jax.Array, jax.Array], Operand]) -> None:
    @operator(f"aten.{name}.correction")
    def compute_with_correction(
        x: jax.Array, dim: Dims = None, correction: float | None = None, keepdim: bool = False
    ) -> Operand:
        return combine(*_variance_and_mean(x, dim, correction, keepdim))

    del compute_with_correction  # registered in the table


for _name, _of in _STATISTICS.items():
    _register_statistic(_name, _of)


@operator("aten.kthvalue.default")
def kthvalue(
    x: jax.Array, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[jax.Array, jax.Array]:
    def find_kth_index(x: jax.Array, axis: int) -> jax.Array:
        return lax.slice_in_dim(jnp.argsort(x, axis), k - 1, k, axis=axis)

    return select_along_axis(x, dim, keepdim, find_kth_index)


@operator("aten.median.dim")
def median_along(x: jax.Array, dim: int, keepdim: bool = False) -> tuple[jax.Array, jax.Array]:
    def find_median_index(x: jax.Array, axis: int) -> jax.Array:
        middle = (x.shape[axis] - 1) // 2
        index = lax.slice_in_dim(jnp.argsort(x, axis), middle, middle + 1, axis=axis)
        nan = jnp.isnan(x)
        first = jnp.argmax(nan, axis, keepdims=True)
        return jnp.where(nan.any(axis, keepdims=True), first, index)

    return select_along_axis(x, dim, keepdim, find_median_index)


@operator("aten.nanmedian.dim")
def nanmedian_along(x: jax.Array, dim: int, keepdim: bool = False) -> tuple[jax.Array, jax.Array]:
    def find_nanmedian_index(x: jax.Array, axis: int) -> jax.Array:
        count = jnp.sum(~jnp.isnan(x), axis, keepdims=True)
        return jnp.take_along_axis(jnp.argsort(x, axis), jnp.maximum(count - 1, 0) // 2, axis)

    return select_along_axis(x, dim, keepdim, find_nanmedian_index)


@operator("aten.median.default")
def median(x: jax.Array) -> jax.Array:
    return (
        _split_gradient_among_equals(x, median_along(lax.stop_gradient(x).reshape(-1), 0)[0])
        if x.size
        else _median_of_nothing(x)
    )


@operator("aten.nanmedian.default")
def nanmedian(x: jax.Array) -> jax.Array:
    flat = lax.stop_gradient(x).reshape(-1)
    return (
        _split_gradient_among_equals(x, nanmedian_along(flat, 0)[0])
        if x.size
        else _median_of_nothing(x)
    )


def _median_of_nothing(x: jax.Array) -> jax.Array:
    """Returns the median of no numbers."""
    return jnp.asarray(jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else 0, x.dtype)


def _split_gradient_among_equals(x: jax.Array, value: jax.Array) -> jax.Array:
    """Returns a value whose gradient is split among all equal elements."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return value
    is_value = (x == value) | (jnp.isnan(x) & jnp.isnan(value))
    change = jnp.where(is_value, zero_with_derivative_of(x), 0).sum() / is_value.sum()
    return value + change


@operator("aten.mode.default")
def mode(x: jax.Array, dim: int = -1, keepdim: bool = False) -> tuple[jax.Array, jax.Array]:
    """Returns the most frequent value, of several the least, and its last index."""

    def find_mode_index(x: jax.Array, axis: int) -> jax.Array:
        rows = jnp.moveaxis(x, axis, -1)
        counts = jnp.sum(rows[..., :, None] == rows[..., None, :], -1)
        frequent = counts == counts.max(-1, keepdims=True)
        order = jnp.argsort(rows, -1)
        first = jnp.argmax(jnp.take_along_axis(frequent, order, -1), -1, keepdims=True)
        least = jnp.take_along_axis(rows, jnp.take_along_axis(order, first, -1), -1)
        last = rows.shape[-1] - 1 - jnp.argmax((rows == least)[..., ::-1], -1, keepdims=True)
        return jnp.moveaxis(last, -1, axis)

    return select_along_axis(x, dim, keepdim, find_mode_index)


@operator("aten.histc.default")
def histc(x: jax.Array, bins: int = 100, min: float = 0, max: float = 0) -> jax.Array:
    limits = (min, max) if min != max else None
    return jnp.histogram(x.astype(jnp.float32), bins, limits)[0]


@operator("aten.histogram.bins_tensor")
def histogram_of_bins(
    x: jax.Array, bins: jax.Array, weight: jax.Array | None = None, density: bool = False
) -> tuple[jax.Array, jax.Array]:
    return jnp.histogram(x, bins, weights=weight, density=density)


@operator("aten.histogram.bin_ct")
def histogram(
    x: jax.Array, bins: int = 100, range: Any = None, weight: jax.Array | None = None,
    density: bool = False,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    return jnp.histogram(x, bins, range, weight, density)
