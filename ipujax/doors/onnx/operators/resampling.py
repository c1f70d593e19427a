"""ONNX image resizing, one dimension at a time."""

from __future__ import annotations

import dataclasses as dc
import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Operand
from ipujax.doors.kernels import (
    apply_interpolation_matrix,
    cubic_weights,
    take_nearest,
    triangle_weights,
)
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array
Line = np.ndarray


@dc.dataclass(frozen=True)
class _Dimension:
    """The old and new size of an image dimension that is resized.

    Attributes:
      old: the old size.
      new: the new size.
      scale: the resize factor; `old * scale` need not be an integer.
      start: the start of the resized region, as a fraction of the size.
      end: the end of the resized region, as a fraction of the size.
    """

    old: int
    new: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    @property
    def width(self) -> float:
        """The new size before rounding."""
        return self.scale * self.old

    @property
    def is_unchanged(self) -> bool:
        """Returns whether resizing leaves the dimension as it is."""
        is_entire = (self.start, self.end) == (0, 1)
        return self.new == self.old and self.scale == 1 and is_entire

    @property
    def steps(self) -> Line:
        """The numbers of the new elements."""
        return np.arange(self.new, dtype=np.float64)


def _half_pixel_positions(dimension: _Dimension) -> Line:
    return (dimension.steps + 0.5) / dimension.scale - 0.5


def _pytorch_half_pixel_positions(dimension: _Dimension) -> Line:
    return _half_pixel_positions(dimension) if dimension.width > 1 else np.zeros(dimension.new)


def _half_pixel_symmetric_positions(dimension: _Dimension) -> Line:
    return dimension.old / 2 * (1 - dimension.new / dimension.width) + _half_pixel_positions(
        dimension
    )


def _align_corners_positions(dimension: _Dimension) -> Line:
    return (
        dimension.steps * (dimension.old - 1) / (dimension.width - 1)
        if dimension.width != 1
        else np.zeros(dimension.new)
    )


def _asymmetric_positions(dimension: _Dimension) -> Line:
    return dimension.steps / dimension.scale


def _tf_half_pixel_for_nn_positions(dimension: _Dimension) -> Line:
    return (dimension.steps + 0.5) / dimension.scale


def _tf_crop_and_resize_positions(dimension: _Dimension) -> Line:
    last = dimension.old - 1
    if dimension.width <= 1:
        return np.full(dimension.new, 0.5 * (dimension.start + dimension.end) * last)
    return dimension.start * last + dimension.steps * (dimension.end - dimension.start) * last / (
        dimension.width - 1
    )


_OLD_POSITIONS: dict[str, Callable[[_Dimension], Line]] = {
    "half_pixel": _half_pixel_positions,
    "half_pixel_symmetric": _half_pixel_symmetric_positions,
    "pytorch_half_pixel": _pytorch_half_pixel_positions,
    "align_corners": _align_corners_positions,
    "asymmetric": _asymmetric_positions,
    "tf_half_pixel_for_nn": _tf_half_pixel_for_nn_positions,
    "tf_crop_and_resize": _tf_crop_and_resize_positions,
}
"""For each coordinate mode, a function to the new elements' positions in the old dimension."""

_NEAREST: dict[str, Callable[[Line], Line]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
    "pytorch": np.floor,
}
"""For each mode, the rounding of positions; PopART's `pytorch` mode counts as `asymmetric`."""


@dc.dataclass(frozen=True)
class _Kernel:
    """An interpolation kernel: weights by distance, up to the distance `reach`."""

    weight: Callable[[Operand], Operand]
    reach: float
    antialias: bool
    exclude_outside: bool

    def interpolation_matrix(self, positions: Line, dimension: _Dimension) -> Line:
        """Returns the weights of the old elements for each new one, [new, old]."""
        narrow = min(dimension.scale, 1.0) if self.antialias else 1.0
        margin = math.ceil(self.reach / narrow) + 1
        columns = np.arange(-margin, dimension.old + margin)
        weights = self.weight((columns - positions[:, None]) * narrow)
        if self.antialias:
            weights = weights / weights.sum(1, keepdims=True)
        if self.exclude_outside:
            weights = np.where((columns >= 0) & (columns < dimension.old), weights, 0)
            weights = weights / weights.sum(1, keepdims=True)
        matrix = np.zeros((dimension.new, dimension.old))
        np.add.at(matrix.T, np.clip(columns, 0, dimension.old - 1), weights.T)
        return matrix


@operator("Resize", 11, static=("roi", "scales", "sizes"))
def resize(
    x: Array,
    roi: Operand = None,
    scales: Operand = None,
    sizes: Operand = None,
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
    _check_resize_modes(mode, coordinate_transformation_mode, nearest_mode)
    kernel = _Kernel(triangle_weights, 1, bool(antialias), bool(exclude_outside))
    if mode == "cubic":
        weight = functools.partial(cubic_weights, a=cubic_coeff_a)
        kernel = dc.replace(kernel, weight=weight, reach=2)
    is_crop = coordinate_transformation_mode == "tf_crop_and_resize"
    find_positions = _OLD_POSITIONS[coordinate_transformation_mode]
    if mode == "nearest" and nearest_mode == "pytorch":
        find_positions = _asymmetric_positions
    axes = range(x.ndim) if axes is None else [axis % x.ndim for axis in axes]
    old = [x.shape[axis] for axis in axes]
    dimensions = _plan_dimensions(
        old, scales, sizes, keep_aspect_ratio_policy, roi if is_crop else None
    )
    result = jnp.asarray(x)
    for axis, dimension in zip(axes, dimensions, strict=True):
        if dimension.is_unchanged:
            continue
        positions = find_positions(dimension)
        if mode == "nearest":
            nearest = np.clip(_NEAREST[nearest_mode](positions), 0, dimension.old - 1)
            result = take_nearest(result, axis, nearest.astype(int))
        else:
            matrix = kernel.interpolation_matrix(positions, dimension)
            wide = result.astype(jnp.promote_types(result.dtype, jnp.float32))
            result = apply_interpolation_matrix(wide, axis, matrix)
        is_outside = (positions < 0) | (positions > dimension.old - 1)
        if is_crop and is_outside.any():
            is_outside = is_outside.reshape(-1, *[1] * (x.ndim - 1 - axis))
            result = jnp.where(is_outside, extrapolation_value, result)
    if jnp.issubdtype(x.dtype, jnp.integer) and result.dtype != x.dtype:
        limits = jnp.iinfo(x.dtype)
        result = jnp.clip(jnp.rint(result), limits.min, limits.max)
    return result.astype(x.dtype)


def _check_resize_modes(mode: str, coordinate_mode: str, nearest_mode: str) -> None:
    if mode not in ("nearest", "linear", "cubic"):
        raise check.value_error(f"the mode of Resize is {mode!r}", "use nearest, linear or cubic")
    for name, value, known_values in (
        ("coordinate_transformation_mode", coordinate_mode, _OLD_POSITIONS),
        ("nearest_mode", nearest_mode, _NEAREST),
    ):
        if value not in known_values:
            raise check.value_error(
                f"{name} of Resize is {value!r}", f"use one of {sorted(known_values)}"
            )


@operator("Resize", 10, static=("scales",))
@operator("Upsample", 9, static=("scales",))
@operator("Upsample", 7)
def upsample(x: Array, scales: Operand = None, mode: str = "nearest") -> Array:
    return resize(
        x, None, scales, mode=mode,
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip


def _plan_dimensions(
    old: Sequence[int], scales: Operand, sizes: Operand, policy: str, roi: Operand
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
        raise check.value_error("Resize is given neither scales nor sizes", "give it one of them")
    starts = [0.0] * len(old) + [1.0] * len(old) if roi is None else [float(r) for r in roi]
    ends = starts[len(old) :]
    return [
        _Dimension(*parts)
        for parts in zip(old, new, factors, starts[: len(old)], ends, strict=True)
    ]
