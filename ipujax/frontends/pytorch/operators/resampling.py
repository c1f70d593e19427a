"""Images in other sizes: each dimension is resampled by itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.frontends.pytorch.operators.table import operator

Matrix = np.ndarray[Any, Any]
"""The weights of the old elements of a line for each new one [new, old]."""

SHARPNESS = -0.75
"""PyTorch's parameter of cubic interpolation."""

_F32 = np.float32  # PyTorch finds places in 32 bits, and where they are rounded shows.


def _scale(old: int, new: int, given: float | None, align_corners: bool) -> Any:
    if align_corners:
        return _F32(old - 1) / _F32(new - 1) if new > 1 else _F32(0)
    return _F32(1 / given) if given is not None and given > 0 else _F32(old) / _F32(new)


def _centres(old: int, new: int, scale: float | None, align_corners: bool) -> Matrix:
    steps = np.arange(new, dtype=_F32)
    factor = _scale(old, new, scale, align_corners)
    return steps * factor if align_corners else factor * (steps + _F32(0.5)) - _F32(0.5)


def cubic_pieces(x: Any, a: float) -> tuple[Any, Any]:
    """The weights of elements at distances below 1, and from there to 2 (Keys 1981)."""
    return ((a + 2) * x - (a + 3)) * x * x + 1, ((x - 5) * x + 8) * x * a - 4 * a


def _cubic(distance: Matrix, a: float) -> Matrix:
    x = np.abs(distance)
    near, far = cubic_pieces(x, a)
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _linear_matrix(old: int, new: int, scale: float | None, align_corners: bool) -> Matrix:
    centres = np.clip(_centres(old, new, scale, align_corners), 0, old - 1)
    return np.maximum(0, 1 - np.abs(centres[:, None] - np.arange(old)))


def _cubic_matrix(old: int, new: int, scale: float | None, align_corners: bool) -> Matrix:
    centres = _centres(old, new, scale, align_corners)
    matrix = np.zeros((new, old))
    for tap in range(-1, 3):
        places = np.floor(centres) + tap
        weights = _cubic(centres - places, SHARPNESS)
        columns = np.clip(places, 0, old - 1).astype(int)
        np.add.at(matrix, (np.arange(new), columns), weights)
    return matrix


def _smooth_matrix(
    kernel: Callable[[Matrix], Matrix],
    reach: float,
    old: int,
    new: int,
    scale: float | None,
    align_corners: bool,
) -> Matrix:
    """With a kernel that is as wide as the new elements: no aliasing."""
    factor = _scale(old, new, scale, align_corners)
    width = max(factor, 1)
    centres = factor * (np.arange(new) + 0.5)
    first = np.maximum((centres - reach * width + 0.5).astype(int), 0)
    last = np.minimum((centres + reach * width + 0.5).astype(int), old)
    columns = np.arange(old)
    weights = kernel((columns - centres[:, None] + 0.5) / width)
    is_inside = (columns >= first[:, None]) & (columns < last[:, None])
    weights = np.where(is_inside, weights, 0)
    return weights / weights.sum(1, keepdims=True)


def _triangle(x: Matrix) -> Matrix:
    return np.maximum(0, 1 - np.abs(x))


def _lanczos(x: Matrix) -> Matrix:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


_Maker = Callable[[int, int, float | None, bool], Matrix]


def _resampled(
    x: jax.Array,
    sizes: Sequence[int],
    scales: Sequence[float | None],
    align_corners: bool,
    matrix_of: _Maker,
) -> jax.Array:
    """The last dimensions in other sizes."""
    for axis, new, scale in zip(range(x.ndim - len(sizes), x.ndim), sizes, scales, strict=True):
        if new == x.shape[axis] and (align_corners or scale in (None, 1)):
            continue
        matrix = jnp.asarray(matrix_of(x.shape[axis], new, scale, align_corners), x.dtype)
        x = jnp.moveaxis(jnp.tensordot(x, matrix, (axis, 1)), -1, axis)
    return x


def _nearest(
    x: jax.Array, sizes: Sequence[int], scales: Sequence[float | None], offset: float
) -> jax.Array:
    for axis, new, scale in zip(range(x.ndim - len(sizes), x.ndim), sizes, scales, strict=True):
        old = x.shape[axis]
        factor = _scale(old, new, scale, False)
        places = ((np.arange(new, dtype=_F32) + _F32(offset)) * factor).astype(int)
        places = np.minimum(places, old - 1)
        if new % old == 0 and (places == np.arange(new) // (new // old)).all():
            x = jnp.repeat(x, new // old, axis)
        else:
            x = jnp.take(x, places, axis, mode="clip")
    return x


def _sizes_of(
    x: jax.Array, sizes: Sequence[int] | None, scales: Sequence[float] | None, count: int
) -> tuple[Sequence[int], Sequence[float | None]]:
    """The new sizes and the scales of what is told either."""
    if sizes is not None:
        return sizes, [None] * count
    factors = list(scales or ())
    old = x.shape[-count:]
    return [int(s * f) for s, f in zip(old, factors, strict=True)], factors


def _register_nearest(name: str, count: int, offset: float) -> None:
    @operator(f"aten.{name}.default")
    def by_size(x: jax.Array, sizes: Sequence[int], *scales: float | None) -> jax.Array:
        return _nearest(x, sizes, scales or [None] * count, offset)

    @operator(f"aten.{name}.vec")
    def by_scale(
        x: jax.Array, sizes: Sequence[int] | None, factors: Sequence[float] | None
    ) -> jax.Array:
        return _nearest(x, *_sizes_of(x, sizes, factors, count), offset)


def _register(name: str, count: int, matrix_of: _Maker) -> None:
    @operator(f"aten.{name}.default")
    def by_size(
        x: jax.Array, sizes: Sequence[int], align_corners: bool, *scales: float | None
    ) -> jax.Array:
        return _resampled(x, sizes, scales or [None] * count, align_corners, matrix_of)

    @operator(f"aten.{name}.vec")
    def by_scale(
        x: jax.Array,
        sizes: Sequence[int] | None,
        align_corners: bool,
        factors: Sequence[float] | None,
    ) -> jax.Array:
        return _resampled(x, *_sizes_of(x, sizes, factors, count), align_corners, matrix_of)


for _count in (1, 2, 3):
    _register_nearest(f"upsample_nearest{_count}d", _count, 0)
    _register_nearest(f"_upsample_nearest_exact{_count}d", _count, 0.5)
for _count, _name in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")):
    _register(f"upsample_{_name}", _count, _linear_matrix)
_register("upsample_bicubic2d", 2, _cubic_matrix)
for _name, _kernel, _reach in (
    ("bilinear2d", _triangle, 1),
    ("bicubic2d", functools.partial(_cubic, a=-0.5), 2),
    ("lanczos2d", _lanczos, 3),
):
    _register(f"_upsample_{_name}_aa", 2, functools.partial(_smooth_matrix, _kernel, _reach))
