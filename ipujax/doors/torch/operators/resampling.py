"""PyTorch image resizing, one dimension at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np

from ipujax.doors.graphs import Operand
from ipujax.doors.kernels import (
    apply_interpolation_matrix,
    cubic_weights,
    take_nearest,
    triangle_weights,
)
from ipujax.doors.torch.operators.table import operator

Matrix = np.ndarray
"""The weights of the old elements of a dimension for each new element, [new, old]."""

SHARPNESS = -0.75
"""PyTorch's coefficient of cubic interpolation."""

# PyTorch computes positions in float32, and the rounding is visible in results.
_POSITION_DTYPE = np.float32


def _old_elements_per_new_element(
    old: int, new: int, scale_factor: float | None, align_corners: bool
) -> Operand:
    if align_corners:
        return (
            _POSITION_DTYPE(old - 1) / _POSITION_DTYPE(new - 1) if new > 1 else _POSITION_DTYPE(0)
        )
    return (
        _POSITION_DTYPE(1 / scale_factor)
        if scale_factor is not None and scale_factor > 0
        else _POSITION_DTYPE(old) / _POSITION_DTYPE(new)
    )


def _old_positions(old: int, new: int, scale: float | None, align_corners: bool) -> Matrix:
    steps = np.arange(new, dtype=_POSITION_DTYPE)
    factor = _old_elements_per_new_element(old, new, scale, align_corners)
    return (
        steps * factor
        if align_corners
        else factor * (steps + _POSITION_DTYPE(0.5)) - _POSITION_DTYPE(0.5)
    )


def _linear_interpolation_matrix(
    old: int, new: int, scale: float | None, align_corners: bool
) -> Matrix:
    centres = np.clip(_old_positions(old, new, scale, align_corners), 0, old - 1)
    return triangle_weights(centres[:, None] - np.arange(old))


def _cubic_interpolation_matrix(
    old: int, new: int, scale: float | None, align_corners: bool
) -> Matrix:
    centres = _old_positions(old, new, scale, align_corners)
    matrix = np.zeros((new, old))
    for tap in range(-1, 3):
        positions = np.floor(centres) + tap
        weights = cubic_weights(centres - positions, SHARPNESS)
        columns = np.clip(positions, 0, old - 1).astype(int)
        np.add.at(matrix, (np.arange(new), columns), weights)
    return matrix


def _antialias_matrix(
    kernel: Callable[[Matrix], Matrix],
    reach: float,
    old: int,
    new: int,
    scale: float | None,
    align_corners: bool,
) -> Matrix:
    """Returns the weights of a kernel as wide as the new elements, which avoids aliasing."""
    factor = _old_elements_per_new_element(old, new, scale, align_corners)
    width = max(factor, 1)
    centres = factor * (np.arange(new) + 0.5)
    first = np.maximum((centres - reach * width + 0.5).astype(int), 0)
    last = np.minimum((centres + reach * width + 0.5).astype(int), old)
    columns = np.arange(old)
    weights = kernel((columns - centres[:, None] + 0.5) / width)
    is_inside = (columns >= first[:, None]) & (columns < last[:, None])
    weights = np.where(is_inside, weights, 0)
    return weights / weights.sum(1, keepdims=True)


def _lanczos_weight(x: Matrix) -> Matrix:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


_MatrixBuilder = Callable[[int, int, float | None, bool], Matrix]


def _resample_last_axes(
    x: jax.Array,
    sizes: Sequence[int],
    scales: Sequence[float | None],
    align_corners: bool,
    build_matrix: _MatrixBuilder,
) -> jax.Array:
    """Resizes the last axes by interpolation matrices."""
    for axis, new, scale in zip(range(x.ndim - len(sizes), x.ndim), sizes, scales, strict=True):
        if new == x.shape[axis] and (align_corners or scale in (None, 1)):
            continue
        matrix = build_matrix(x.shape[axis], new, scale, align_corners)
        x = apply_interpolation_matrix(x, axis, matrix)
    return x


def _resample_nearest(
    x: jax.Array, sizes: Sequence[int], scales: Sequence[float | None], offset: float
) -> jax.Array:
    for axis, new, scale in zip(range(x.ndim - len(sizes), x.ndim), sizes, scales, strict=True):
        old = x.shape[axis]
        factor = _old_elements_per_new_element(old, new, scale, False)
        old_indices = (
            (np.arange(new, dtype=_POSITION_DTYPE) + _POSITION_DTYPE(offset)) * factor
        ).astype(int)
        x = take_nearest(x, axis, np.minimum(old_indices, old - 1))
    return x


def _find_new_sizes(
    x: jax.Array, sizes: Sequence[int] | None, scales: Sequence[float] | None, count: int
) -> tuple[Sequence[int], Sequence[float | None]]:
    """Returns the new sizes and the scales, of which the caller gives one."""
    if sizes is not None:
        return sizes, [None] * count
    factors = list(scales or ())
    old = x.shape[-count:]
    return [int(s * f) for s, f in zip(old, factors, strict=True)], factors


def _register_nearest(name: str, count: int, offset: float) -> None:
    @operator(f"aten.{name}.default")
    def resize_nearest_to(x: jax.Array, sizes: Sequence[int], *scales: float | None) -> jax.Array:
        return _resample_nearest(x, sizes, scales or [None] * count, offset)

    @operator(f"aten.{name}.vec")
    def resize_nearest_by(
        x: jax.Array, sizes: Sequence[int] | None, factors: Sequence[float] | None
    ) -> jax.Array:
        return _resample_nearest(x, *_find_new_sizes(x, sizes, factors, count), offset)


def _register_interpolation(name: str, count: int, build_matrix: _MatrixBuilder) -> None:
    @operator(f"aten.{name}.default")
    def interpolate_to(
        x: jax.Array, sizes: Sequence[int], align_corners: bool, *scales: float | None
    ) -> jax.Array:
        return _resample_last_axes(x, sizes, scales or [None] * count, align_corners, build_matrix)

    @operator(f"aten.{name}.vec")
    def interpolate_by(
        x: jax.Array,
        sizes: Sequence[int] | None,
        align_corners: bool,
        factors: Sequence[float] | None,
    ) -> jax.Array:
        return _resample_last_axes(
            x, *_find_new_sizes(x, sizes, factors, count), align_corners, build_matrix
        )


for _count in (1, 2, 3):
    _register_nearest(f"upsample_nearest{_count}d", _count, 0)
    _register_nearest(f"_upsample_nearest_exact{_count}d", _count, 0.5)
for _count, _name in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")):
    _register_interpolation(f"upsample_{_name}", _count, _linear_interpolation_matrix)
_register_interpolation("upsample_bicubic2d", 2, _cubic_interpolation_matrix)
for _name, _kernel, _reach in (
    ("bilinear2d", triangle_weights, 1),
    ("bicubic2d", functools.partial(cubic_weights, a=-0.5), 2),
    ("lanczos2d", _lanczos_weight, 3),
):
    _register_interpolation(
        f"_upsample_{_name}_aa", 2, functools.partial(_antialias_matrix, _kernel, _reach)
    )
