"""Pooling of image regions, and deformable convolution."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Operand
from ipujax.doors.kernels import lowest_value
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.sampling import linear_taps, sample_image_at_taps
from ipujax.doors.onnx.operators.table import operator
from ipujax.doors.onnx.operators.windows import Ints, plan_windows

Array = jax.Array


@operator("DeformConv", 19)
def deform_conv(
    x: Array,
    weight: Array,
    offset: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    offset_group: int = 1,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    """Convolves an image with windows whose elements are moved by offsets."""
    kernel = tuple(kernel_shape or weight.shape[2:])
    windows = plan_windows(x.shape[2:], kernel, strides, pads, dilations)
    counts = tuple(w.count for w in windows)
    size, count = math.prod(kernel), len(kernel)
    moves = jnp.reshape(offset, (x.shape[0], offset_group, size, count, *counts))
    modulations = jnp.ones((1, offset_group, size, *counts), x.dtype) if mask is None else mask
    modulations = jnp.broadcast_to(
        jnp.reshape(modulations, (-1, offset_group, size, *counts)),
        (x.shape[0], offset_group, size, *counts),
    )
    # [elements of a window, windows...] along each dimension
    starts = [
        np.moveaxis(w.indices, 0, 1).reshape(
            *(w.kernel if i == j else 1 for j in range(count)),
            *(w.count if i == j else 1 for j in range(count)),
        )
        for i, w in enumerate(windows)
    ]
    starts = [np.broadcast_to(s, (*kernel, *counts)).reshape(size, *counts) for s in starts]
    images = jnp.reshape(x, (x.shape[0], offset_group, -1, *x.shape[2:]))

    def sample_window_elements(image: Array, moved: Array, modulation: Array) -> Array:
        taps = [linear_taps(jnp.asarray(starts[i], x.dtype) + moved[:, i]) for i in range(count)]
        return sample_image_at_taps(image, taps) * modulation

    elements = jax.vmap(jax.vmap(sample_window_elements))(images, moves, modulations)
    elements = elements.reshape(x.shape[0], group, -1, math.prod(counts))
    kernels = jnp.reshape(weight, (group, weight.shape[0] // group, -1))
    result = jnp.einsum("goi,ngiw->ngow", kernels, elements)
    result = result.reshape(x.shape[0], -1, *counts)
    return result if bias is None else result + jnp.reshape(bias, (1, -1, *[1] * count))


@operator("MaxRoiPool")
def max_roi_pool(
    x: Array, rois: Array, pooled_shape: Ints = (), spatial_scale: float = 1.0
) -> Array:
    """Returns the maxima of the parts of regions, which are [image, x1, y1, x2, y2]."""
    images = jnp.asarray(x)

    def pool_region(region: Array) -> Array:
        result = images[region[0].astype(jnp.int32)]
        corners = jnp.floor(region[1:] * spatial_scale + 0.5)
        for axis in (1, 0):
            first, last = corners[1 - axis], corners[3 - axis]
            is_in_part = _elements_in_parts(first, last, pooled_shape[axis], result.shape[-1])
            largest = jnp.where(is_in_part, result[..., None, :], lowest_value(x.dtype)).max(-1)
            result = jnp.where(is_in_part.any(-1), largest, 0).swapaxes(1, 2)
        return result

    return jax.vmap(pool_region)(jnp.asarray(rois))


def _elements_in_parts(first: Array, last: Array, count: int, size: int) -> Array:
    """Returns which elements of a dimension lie in which of equal parts, [count, size]."""
    part_size = jnp.maximum(last - first + 1, 1) / count
    starts = jnp.floor(jnp.arange(count) * part_size) + first
    ends = jnp.ceil((jnp.arange(count) + 1) * part_size) + first
    positions = jnp.arange(size)
    return (positions >= starts[:, None]) & (positions < ends[:, None])


@operator("RoiAlign", 16)
def roi_align(
    x: Array,
    rois: Array,
    batch_indices: Array,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
    """Returns means or maxima of sampled points in constant regions [x1, y1, x2, y2]."""
    if coordinate_transformation_mode not in ("half_pixel", "output_half_pixel"):
        raise check.value_error(
            f"coordinate_transformation_mode is {coordinate_transformation_mode!r}",
            "use half_pixel or output_half_pixel",
        )
    is_half = coordinate_transformation_mode == "half_pixel"
    images, regions = jnp.asarray(x), jax.lax.stop_gradient(jnp.asarray(rois))
    pool = _average_points if mode == "avg" else _max_of_points
    counts = (output_height, output_width)

    def align_region(region: Array, index: Array) -> Array:
        corners = region * spatial_scale - (0.5 if is_half else 0)
        extents = corners[2:] - corners[:2]
        extents = extents if is_half else jnp.maximum(extents, 1)
        lines = [
            _PartsAlongDimension(
                corners[1 - axis], extents[1 - axis] / counts[axis], counts[axis], x.shape[2 + axis]
            )
            for axis in (0, 1)
        ]
        return pool(images[index], lines, sampling_ratio)

    return jax.vmap(align_region)(regions, jnp.asarray(batch_indices))


@operator("RoiAlign", 10)
def roi_align_10(x: Array, rois: Array, batch_indices: Array, **attributes: object) -> Array:
    return roi_align(x, rois, batch_indices, "output_half_pixel", **attributes)


@dc.dataclass(frozen=True)
class _PartsAlongDimension:
    """The parts of a region along one dimension of an image."""

    start: Array
    part_size: Array
    count: int
    size: int

    def sample_points(self, number: Operand, points_per_part: Operand) -> tuple[Array, Array]:
        """Returns the position of one point in each part [count], and whether it is counted."""
        steps = jnp.arange(self.count) * self.part_size
        positions = self.start + steps + (number + 0.5) * self.part_size / points_per_part
        return jnp.clip(positions, 0, self.size - 1), (positions >= -1) & (positions <= self.size)


def _average_points(
    image: Array, lines: Sequence[_PartsAlongDimension], sampling_ratio: int
) -> Array:
    def weights_of_line(line: _PartsAlongDimension) -> Array:
        """Returns the weights of the dimension's elements in each part [count, size]."""
        number = sampling_ratio or jnp.ceil(line.part_size).astype(jnp.int32)

        def add_point(i: Operand, total: Array) -> Array:
            positions, counts = line.sample_points(i, number)
            near = jnp.maximum(0, 1 - abs(positions[:, None] - jnp.arange(line.size)))
            return total + jnp.where(counts[:, None], near, 0)

        total = jnp.zeros((line.count, line.size), line.part_size.dtype)
        total = jax.lax.fori_loop(0, number, add_point, total)
        return (total / jnp.maximum(number, 1)).astype(image.dtype)

    return jnp.einsum("chw,ph,qw->cpq", image, *map(weights_of_line, lines))


def _max_of_points(
    image: Array, lines: Sequence[_PartsAlongDimension], sampling_ratio: int
) -> Array:
    """Returns the maximum of the points' weighted neighbours, as ONNX defines it."""
    if not sampling_ratio:
        raise check.value_error(
            "RoiAlign without sampling_ratio takes a number of points that depends on the regions",
            "set sampling_ratio, since compiled shapes must be static",
        )
    neighbours_and_weights: list[tuple[Array, Array]] = []
    for line in lines:
        positions, counts = line.sample_points(np.arange(sampling_ratio)[:, None], sampling_ratio)
        low = jnp.minimum(jnp.floor(positions), line.size - 1)
        fraction = positions - low
        # [points and neighbours, parts]
        near = jnp.concatenate([low, jnp.minimum(low + 1, line.size - 1)])
        weight = jnp.where(jnp.tile(counts, (2, 1)), jnp.concatenate([1 - fraction, fraction]), 0)
        neighbours_and_weights.append((near.astype(jnp.int32), weight.astype(image.dtype)))
    (rows, of_rows), (columns, of_columns) = neighbours_and_weights
    elements = image[:, rows[:, None, :, None], columns[None, :, None, :]]
    weighted = elements * of_rows[:, None, :, None] * of_columns[None, :, None, :]
    return weighted.max((1, 2))
