"""Images in other sizes: each dimension is resampled by itself."""

from __future__ import annotations

import dataclasses as dc
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.sampling import cubic
from ipujax.frontends.onnx.operators.table import operator

Array = jax.Array
Line = np.ndarray[Any, Any]


@dc.dataclass(frozen=True)
class _Dimension:
    """A dimension of an image, and what becomes of it.

    Attributes:
      old: its size.
      new: the size that it gets.
      scale: what it is resized by; `old * scale` need not be a whole number.
      start: where the region begins that is resized, as a part of the size.
      end: where it ends.
    """

    old: int
    new: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    @property
    def width(self) -> float:
        """The new size before it is rounded."""
        return self.scale * self.old

    @property
    def steps(self) -> Line:
        """The new elements, counted."""
        return np.arange(self.new, dtype=np.float64)


def _half_pixel(d: _Dimension) -> Line:
    return (d.steps + 0.5) / d.scale - 0.5


def _pytorch_half_pixel(d: _Dimension) -> Line:
    return _half_pixel(d) if d.width > 1 else np.zeros(d.new)


def _half_pixel_symmetric(d: _Dimension) -> Line:
    return d.old / 2 * (1 - d.new / d.width) + _half_pixel(d)


def _align_corners(d: _Dimension) -> Line:
    return d.steps * (d.old - 1) / (d.width - 1) if d.width != 1 else np.zeros(d.new)


def _asymmetric(d: _Dimension) -> Line:
    return d.steps / d.scale


def _tf_half_pixel_for_nn(d: _Dimension) -> Line:
    return (d.steps + 0.5) / d.scale


def _tf_crop_and_resize(d: _Dimension) -> Line:
    last = d.old - 1
    if d.width <= 1:
        return np.full(d.new, 0.5 * (d.start + d.end) * last)
    return d.start * last + d.steps * (d.end - d.start) * last / (d.width - 1)


_PLACES: dict[str, Callable[[_Dimension], Line]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_half_pixel_for_nn": _tf_half_pixel_for_nn,
    "tf_crop_and_resize": _tf_crop_and_resize,
}
"""Where the new elements are in the old dimension."""

_NEAREST: dict[str, Callable[[Line], Line]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
    "pytorch": np.floor,
}
"""Which old element a new one is; PopART's `pytorch` counts places as `asymmetric` does."""


def _triangle(distance: Line) -> Line:
    return np.maximum(0, 1 - np.abs(distance))


@dc.dataclass(frozen=True)
class _Kernel:
    """How elements are weighted by their distance; `reach` is the largest that counts."""

    weight: Callable[[Any], Any]
    reach: float
    antialias: bool
    exclude_outside: bool

    def matrix(self, places: Line, d: _Dimension) -> Line:
        """The weights of the old elements for each new one [new, old]."""
        narrow = min(d.scale, 1.0) if self.antialias else 1.0
        room = math.ceil(self.reach / narrow) + 1
        columns = np.arange(-room, d.old + room)
        weights = self.weight((columns - places[:, None]) * narrow)
        if self.antialias:
            weights = weights / weights.sum(1, keepdims=True)
        if self.exclude_outside:
            weights = np.where((columns >= 0) & (columns < d.old), weights, 0)
            weights = weights / weights.sum(1, keepdims=True)
        matrix = np.zeros((d.new, d.old))
        np.add.at(matrix.T, np.clip(columns, 0, d.old - 1), weights.T)
        return matrix


@operator("Resize", 11, static=("roi", "scales", "sizes"))
def resize(
    x: Array,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Array:
    if mode not in ("nearest", "linear", "cubic"):
        raise check.refuse(f"the mode of Resize is {mode!r}", "use nearest, linear or cubic")
    for name, value, known in (
        ("coordinate_transformation_mode", coordinate_transformation_mode, _PLACES),
        ("nearest_mode", nearest_mode, _NEAREST),
    ):
        if value not in known:
            raise check.refuse(f"{name} of Resize is {value!r}", f"use one of {sorted(known)}")
    kernel = _Kernel(_triangle, 1, bool(antialias), bool(exclude_outside))
    if mode == "cubic":
        weight = functools.partial(cubic, a=cubic_coeff_a)
        kernel = dc.replace(kernel, weight=weight, reach=2)
    is_crop = coordinate_transformation_mode == "tf_crop_and_resize"
    places_of = _PLACES[coordinate_transformation_mode]
    if mode == "nearest" and nearest_mode == "pytorch":
        places_of = _asymmetric
    axes = range(x.ndim) if axes is None else [axis % x.ndim for axis in axes]
    old = [x.shape[axis] for axis in axes]
    dimensions = _dimensions(old, scales, sizes, keep_aspect_ratio_policy, roi if is_crop else None)
    result = jnp.asarray(x)
    for axis, d in zip(axes, dimensions, strict=True):
        if d.new == d.old and d.scale == 1 and (d.start, d.end) == (0, 1):
            continue
        places = places_of(d)
        if mode == "nearest":
            result = _taken(result, axis, _NEAREST[nearest_mode](places), d)
        else:
            result = _weighted(result, axis, kernel.matrix(places, d))
        outside = (places < 0) | (places > d.old - 1)
        if is_crop and outside.any():
            outside = outside.reshape(-1, *[1] * (x.ndim - 1 - axis))
            result = jnp.where(outside, extrapolation_value, result)
    if jnp.issubdtype(x.dtype, jnp.integer) and result.dtype != x.dtype:
        limits = jnp.iinfo(x.dtype)
        result = jnp.clip(jnp.rint(result), limits.min, limits.max)
    return result.astype(x.dtype)


@operator("Resize", 10, static=("scales",))
@operator("Upsample", 9, static=("scales",))
@operator("Upsample", 7)
def upsample(x: Array, scales: Any = None, mode: str = "nearest") -> Array:
    return resize(
        x, None, scales, mode=mode,
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip


def _dimensions(
    old: Sequence[int], scales: Any, sizes: Any, policy: str, roi: Any
) -> list[_Dimension]:
    factors = [] if scales is None else [float(s) for s in scales]
    if factors:
        new = [int(np.float32(s) * np.float32(size)) for s, size in zip(factors, old, strict=True)]
    elif sizes is not None and len(sizes):
        new = [int(s) for s in sizes]
        factors = [n / size for n, size in zip(new, old, strict=True)]
        if policy != "stretch":
            factor = {"not_larger": min, "not_smaller": max}[policy](factors)
            factors = [factor] * len(old)
            new = [int(factor * size + 0.5) for size in old]
    else:
        raise check.refuse("Resize is given neither scales nor sizes", "give it one of them")
    starts = [0.0] * len(old) + [1.0] * len(old) if roi is None else [float(r) for r in roi]
    ends = starts[len(old) :]
    return [
        _Dimension(*parts)
        for parts in zip(old, new, factors, starts[: len(old)], ends, strict=True)
    ]


def _taken(x: Array, axis: int, places: Line, d: _Dimension) -> Array:
    chosen = np.clip(places, 0, d.old - 1).astype(int)
    if d.new % d.old == 0 and (chosen == np.arange(d.new) // (d.new // d.old)).all():
        return jnp.repeat(x, d.new // d.old, axis)
    return jnp.take(x, chosen, axis, mode="clip")


def _weighted(x: Array, axis: int, matrix: Line) -> Array:
    kind = jnp.promote_types(x.dtype, jnp.float32)
    result = jnp.tensordot(x.astype(kind), jnp.asarray(matrix, kind), (axis, 1))
    return jnp.moveaxis(result, -1, axis)
