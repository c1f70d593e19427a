"""Images at places that are computed, and boxes in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.sampling import (
    Taps,
    cubic_taps,
    linear_taps,
    sampled,
    zeros_outside,
)
from ipujax.frontends.onnx.operators.table import operator

Array = jax.Array
Numbers = np.ndarray[Any, Any]


def _nearest_tap(places: Array) -> Taps:
    return [(jnp.round(places), jnp.ones_like(places))]


_MODES = {
    "linear": linear_taps,
    "bilinear": linear_taps,
    "cubic": cubic_taps,
    "bicubic": cubic_taps,
    "nearest": _nearest_tap,
}


def _reflected(places: Array, low: float, high: float) -> Array:
    """Thrown back from the borders until they are inside."""
    if high <= low:
        return jnp.zeros_like(places)
    distance = jnp.abs(places - low)
    turns = jnp.floor(distance / (high - low))
    rest = distance - turns * (high - low)
    return jnp.where(turns % 2 == 0, low + rest, high - rest)


@operator("GridSample", 16)
def grid_sample(
    x: Array, grid: Array, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Array:
    """An image at the places of a grid, where -1 and 1 are the image's borders."""
    if mode not in _MODES or padding_mode not in ("zeros", "border", "reflection"):
        raise check.refuse(
            f"GridSample is given mode={mode!r}, padding_mode={padding_mode!r}",
            f"use one of {sorted(_MODES)}, and of zeros, border and reflection",
        )
    half = 0.0 if align_corners else 0.5

    def padded(places: Array, axis: int, size: int) -> tuple[Array, Array]:
        if padding_mode == "zeros":
            return zeros_outside(places, axis, size)
        if padding_mode == "reflection":
            places = jnp.trunc(_reflected(places, -half, size - 1 + half))
        return jnp.clip(places, 0, size - 1), jnp.ones_like(places, bool)

    def of_image(image: Array, places: Array) -> Array:
        taps: list[Taps] = []
        for axis, size in enumerate(image.shape[1:]):
            # The last dimension's place comes first.
            share = (places[..., -1 - axis] + 1) / 2
            place = share * (size - 1) if align_corners else share * size - 0.5
            if padding_mode == "border":
                outside = (place < -half) | (place > size - 1 + half)
                place = jnp.where(outside, jnp.clip(place, 0, size - 1), place)
            elif padding_mode == "reflection":
                place = _reflected(place, -half, size - 1 + half)
            taps.append(_MODES[mode](place))
        return sampled(image, taps, padded)

    return jax.vmap(of_image)(jnp.asarray(x), jnp.asarray(grid)).astype(x.dtype)


@operator("AffineGrid", 20, static=("size",))
def affine_grid(theta: Array, size: Any, align_corners: int = 0) -> Array:
    """The grid [batch, ..., dimensions] that `GridSample` takes of an affine map."""
    lines: list[Numbers] = []
    for count in map(int, size[2:]):
        steps = np.arange(count)
        if align_corners:
            lines.append(2 * steps / (count - 1) - 1 if count > 1 else np.zeros(1))
        else:
            lines.append((2 * steps + 1) / count - 1)
    places = np.meshgrid(*lines, indexing="ij")[::-1]
    homogeneous = np.stack([*places, np.ones_like(places[0])], -1)
    return jnp.einsum("...j,nij->n...i", jnp.asarray(homogeneous, theta.dtype), theta)


@operator("CenterCropPad", 18, static=("shape",))
def center_crop_pad(x: Array, shape: Any, axes: Sequence[int] | None = None) -> Array:
    axes = range(x.ndim) if axes is None else [axis % x.ndim for axis in axes]
    room = [(0, 0, 0)] * x.ndim
    for axis, new in zip(axes, map(int, shape), strict=True):
        more = new - x.shape[axis]
        # The odd element is after the image, whether it comes or goes.
        before = more // 2 if more >= 0 else -(-more // 2)
        room[axis] = (before, more - before, 0)
    return jax.lax.pad(jnp.asarray(x), np.zeros((), x.dtype), room)


@operator("NonMaxSuppression", 10, static=(
    "boxes", "scores", "max_output_boxes_per_class", "iou_threshold", "score_threshold"
))  # fmt: skip
def non_max_suppression(
    boxes: Numbers,
    scores: Numbers,
    max_output_boxes_per_class: Any = 0,
    iou_threshold: Any = 0.0,
    score_threshold: Any = None,
    center_point_box: int = 0,
) -> Numbers:
    """[image, class, box] of the boxes that are kept; how many there are depends on values."""
    most = int(np.ravel(max_output_boxes_per_class or 0)[0])
    limit = -np.inf if score_threshold is None else float(np.ravel(score_threshold)[0])
    overlap = 0.0 if iou_threshold is None else float(np.ravel(iou_threshold)[0])
    found: list[tuple[int, int, int]] = []
    for image, of_classes in enumerate(scores):
        corners = _corners(boxes[image], center_point_box)
        for kind, values in enumerate(of_classes):
            kept: list[int] = []
            for box in np.argsort(-values, kind="stable"):
                if len(kept) == most or values[box] <= limit:
                    break
                if all(_overlap(corners[box], corners[other]) <= overlap for other in kept):
                    kept.append(int(box))
            found += [(image, kind, box) for box in kept]
    return np.asarray(found, np.int64).reshape(-1, 3)


def _corners(boxes: Numbers, is_centre: int) -> Numbers:
    """Boxes as [y1, x1, y2, x2], from two corners, or from [x, y, width, height]."""
    if is_centre:
        centres, halves = boxes[:, 1::-1], boxes[:, :1:-1] / 2
        return np.concatenate([centres - halves, centres + halves], 1)
    one, other = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(one, other), np.maximum(one, other)], 1)


def _overlap(one: Numbers, other: Numbers) -> float:
    """What two boxes share as a part of what they cover together."""
    sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    shared = float(np.prod(np.maximum(sides, 0)))
    together = float(np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2])) - shared
    return shared / together if shared > 0 else 0.0


@operator("ImageDecoder", 20, folded=False)
def image_decoder(stream: Any, pixel_format: str = "RGB") -> Any:
    raise check.refuse(
        "ImageDecoder reads files of images, which no device can", "give the model decoded images"
    )
