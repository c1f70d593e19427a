"""Pooling of regions of images, and convolutions at places that are computed."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.pooling import lowest
from ipujax.frontends.onnx.operators.sampling import linear_taps, sampled
from ipujax.frontends.onnx.operators.table import operator
from ipujax.frontends.onnx.operators.windows import Ints, windows_of

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
    """A convolution whose windows' elements are moved, each by itself."""
    kernel = tuple(kernel_shape or weight.shape[2:])
    windows = windows_of(x.shape[2:], kernel, strides, pads, dilations)
    counts = tuple(w.count for w in windows)
    size, count = math.prod(kernel), len(kernel)
    moves = jnp.reshape(offset, (x.shape[0], offset_group, size, count, *counts))
    shares = jnp.ones((1, offset_group, size, *counts), x.dtype) if mask is None else mask
    shares = jnp.broadcast_to(
        jnp.reshape(shares, (-1, offset_group, size, *counts)),
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

    def of_image(image: Array, moved: Array, share: Array) -> Array:
        taps = [linear_taps(jnp.asarray(starts[i], x.dtype) + moved[:, i]) for i in range(count)]
        return sampled(image, taps) * share

    elements = jax.vmap(jax.vmap(of_image))(images, moves, shares)
    elements = elements.reshape(x.shape[0], group, -1, math.prod(counts))
    kernels = jnp.reshape(weight, (group, weight.shape[0] // group, -1))
    result = jnp.einsum("goi,ngiw->ngow", kernels, elements)
    result = result.reshape(x.shape[0], -1, *counts)
    return result if bias is None else result + jnp.reshape(bias, (1, -1, *[1] * count))


@operator("MaxRoiPool")
def max_roi_pool(
    x: Array, rois: Array, pooled_shape: Ints = (), spatial_scale: float = 1.0
) -> Array:
    """The largest elements of parts of regions, which are [image, x1, y1, x2, y2]."""
    images = jnp.asarray(x)

    def of_region(region: Array) -> Array:
        result = images[region[0].astype(jnp.int32)]
        corners = jnp.floor(region[1:] * spatial_scale + 0.5)
        for axis in (1, 0):
            first, last = corners[1 - axis], corners[3 - axis]
            inside = _parts(first, last, pooled_shape[axis], result.shape[-1])
            largest = jnp.where(inside, result[..., None, :], lowest(x.dtype)).max(-1)
            result = jnp.where(inside.any(-1), largest, 0).swapaxes(1, 2)
        return result

    return jax.vmap(of_region)(jnp.asarray(rois))


def _parts(first: Array, last: Array, count: int, size: int) -> Array:
    """Which elements of a dimension are in which of equal parts, that overlap [count, size]."""
    each = jnp.maximum(last - first + 1, 1) / count
    starts = jnp.floor(jnp.arange(count) * each) + first
    ends = jnp.ceil((jnp.arange(count) + 1) * each) + first
    places = jnp.arange(size)
    return (places >= starts[:, None]) & (places < ends[:, None])


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
    """Means or maxima of points of regions, which are [x1, y1, x2, y2]; regions are constants."""
    if coordinate_transformation_mode not in ("half_pixel", "output_half_pixel"):
        raise check.refuse(
            f"coordinate_transformation_mode is {coordinate_transformation_mode!r}",
            "use half_pixel or output_half_pixel",
        )
    is_half = coordinate_transformation_mode == "half_pixel"
    images, regions = jnp.asarray(x), jax.lax.stop_gradient(jnp.asarray(rois))
    pooled = _mean if mode == "avg" else _maximum
    counts = (output_height, output_width)

    def of_region(region: Array, index: Array) -> Array:
        corners = region * spatial_scale - (0.5 if is_half else 0)
        extents = corners[2:] - corners[:2]
        extents = extents if is_half else jnp.maximum(extents, 1)
        lines = [
            _Line(
                corners[1 - axis], extents[1 - axis] / counts[axis], counts[axis], x.shape[2 + axis]
            )
            for axis in (0, 1)
        ]
        return pooled(images[index], lines, sampling_ratio)

    return jax.vmap(of_region)(regions, jnp.asarray(batch_indices))


@operator("RoiAlign", 10)
def roi_align_10(x: Array, rois: Array, batch_indices: Array, **attributes: Any) -> Array:
    return roi_align(x, rois, batch_indices, "output_half_pixel", **attributes)


@dc.dataclass(frozen=True)
class _Line:
    """The parts of a region along one dimension of an image."""

    start: Array
    part: Array
    count: int
    size: int

    def points(self, number: Any, of: Any) -> tuple[Array, Array]:
        """The place of one of some points in each part [count], and whether it counts."""
        steps = jnp.arange(self.count) * self.part
        places = self.start + steps + (number + 0.5) * self.part / of
        return jnp.clip(places, 0, self.size - 1), (places >= -1) & (places <= self.size)


def _mean(image: Array, lines: Sequence[_Line], sampling_ratio: int) -> Array:
    def weights(line: _Line) -> Array:
        """Of the elements of the dimension in each part [count, size]."""
        number = sampling_ratio or jnp.ceil(line.part).astype(jnp.int32)

        def with_point(i: Any, total: Array) -> Array:
            places, counts = line.points(i, number)
            near = jnp.maximum(0, 1 - abs(places[:, None] - jnp.arange(line.size)))
            return total + jnp.where(counts[:, None], near, 0)

        total = jnp.zeros((line.count, line.size), line.part.dtype)
        total = jax.lax.fori_loop(0, number, with_point, total)
        return (total / jnp.maximum(number, 1)).astype(image.dtype)

    return jnp.einsum("chw,ph,qw->cpq", image, *map(weights, lines))


def _maximum(image: Array, lines: Sequence[_Line], sampling_ratio: int) -> Array:
    """The largest of all points' neighbours, each times its weight, as ONNX has it."""
    if not sampling_ratio:
        raise check.refuse(
            "the number of points of RoiAlign depends on the regions", "give it a sampling_ratio"
        )
    found: list[tuple[Array, Array]] = []
    for line in lines:
        places, counts = line.points(np.arange(sampling_ratio)[:, None], sampling_ratio)
        low = jnp.minimum(jnp.floor(places), line.size - 1)
        share = places - low
        # [points and neighbours, parts]
        near = jnp.concatenate([low, jnp.minimum(low + 1, line.size - 1)])
        weight = jnp.where(jnp.tile(counts, (2, 1)), jnp.concatenate([1 - share, share]), 0)
        found.append((near.astype(jnp.int32), weight.astype(image.dtype)))
    (rows, of_rows), (columns, of_columns) = found
    elements = image[:, rows[:, None, :, None], columns[None, :, None, :]]
    weighted = elements * of_rows[:, None, :, None] * of_columns[None, :, None, :]
    return weighted.max((1, 2))
