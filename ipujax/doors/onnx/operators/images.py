"""Image sampling, cropping and box operators."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.sampling import (
    Taps,
    clip_with_zeros_outside,
    cubic_taps,
    linear_taps,
    sample_image_at_taps,
)
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array
Numbers = np.ndarray


def _nearest_taps(positions: Array) -> Taps:
    return [(jnp.round(positions), jnp.ones_like(positions))]


_MODES = {
    "linear": linear_taps,
    "bilinear": linear_taps,
    "cubic": cubic_taps,
    "bicubic": cubic_taps,
    "nearest": _nearest_taps,
}


def _reflect_positions(positions: Array, low: float, high: float) -> Array:
    """Reflects positions at the borders until they are inside."""
    if high <= low:
        return jnp.zeros_like(positions)
    distance = jnp.abs(positions - low)
    turns = jnp.floor(distance / (high - low))
    remainder = distance - turns * (high - low)
    return jnp.where(turns % 2 == 0, low + remainder, high - remainder)


@operator("GridSample", 16)
def grid_sample(
    x: Array, grid: Array, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Array:
    """Samples an image at the positions of a grid, whose borders are at -1 and 1."""
    if mode not in _MODES or padding_mode not in ("zeros", "border", "reflection"):
        raise check.value_error(
            f"GridSample is given mode={mode!r}, padding_mode={padding_mode!r}",
            f"use one of {sorted(_MODES)}, and of zeros, border and reflection",
        )
    half = 0.0 if align_corners else 0.5

    def pad_positions(positions: Array, axis: int, size: int) -> tuple[Array, Array]:
        if padding_mode == "zeros":
            return clip_with_zeros_outside(positions, axis, size)
        if padding_mode == "reflection":
            positions = jnp.trunc(_reflect_positions(positions, -half, size - 1 + half))
        return jnp.clip(positions, 0, size - 1), jnp.ones_like(positions, bool)

    def sample_image(image: Array, grid_positions: Array) -> Array:
        taps: list[Taps] = []
        for axis, size in enumerate(image.shape[1:]):
            # The last dimension's position comes first.
            fraction = (grid_positions[..., -1 - axis] + 1) / 2
            positions = fraction * (size - 1) if align_corners else fraction * size - 0.5
            if padding_mode == "border":
                is_outside = (positions < -half) | (positions > size - 1 + half)
                positions = jnp.where(is_outside, jnp.clip(positions, 0, size - 1), positions)
            elif padding_mode == "reflection":
                positions = _reflect_positions(positions, -half, size - 1 + half)
            taps.append(_MODES[mode](positions))
        return sample_image_at_taps(image, taps, pad_positions)

    return jax.vmap(sample_image)(jnp.asarray(x), jnp.asarray(grid)).astype(x.dtype)


@operator("AffineGrid", 20, static=("size",))
def affine_grid(theta: Array, size: Operand, align_corners: int = 0) -> Array:
    """Returns the grid [batch, ..., dimensions] that `GridSample` takes for an affine map."""
    lines: list[Numbers] = []
    for count in map(int, size[2:]):
        steps = np.arange(count)
        if align_corners:
            lines.append(2 * steps / (count - 1) - 1 if count > 1 else np.zeros(1))
        else:
            lines.append((2 * steps + 1) / count - 1)
    grid_positions = np.meshgrid(*lines, indexing="ij")[::-1]
    homogeneous = np.stack([*grid_positions, np.ones_like(grid_positions[0])], -1)
    return jnp.einsum("...j,nij->n...i", jnp.asarray(homogeneous, theta.dtype), theta)


@operator("CenterCropPad", 18, static=("shape",))
def center_crop_pad(x: Array, shape: Operand, axes: Sequence[int] | None = None) -> Array:
    axes = range(x.ndim) if axes is None else [axis % x.ndim for axis in axes]
    padding = [(0, 0, 0)] * x.ndim
    for axis, new in zip(axes, map(int, shape), strict=True):
        added = new - x.shape[axis]
        # An odd element is added or removed at the end.
        added_before = added // 2 if added >= 0 else -(-added // 2)
        padding[axis] = (added_before, added - added_before, 0)
    return jax.lax.pad(jnp.asarray(x), np.zeros((), x.dtype), padding)


@operator("NonMaxSuppression", 10, static=(
    "boxes", "scores", "max_output_boxes_per_class", "iou_threshold", "score_threshold"
))  # fmt: skip
def non_max_suppression(
    boxes: Numbers,
    scores: Numbers,
    max_output_boxes_per_class: Operand = 0,
    iou_threshold: Operand = 0.0,
    score_threshold: Operand = None,
    center_point_box: int = 0,
) -> Numbers:
    """Returns [image, class, box] of the boxes that are kept; their number depends on values."""
    max_boxes = int(np.ravel(max_output_boxes_per_class or 0)[0])
    min_score = -np.inf if score_threshold is None else float(np.ravel(score_threshold)[0])
    max_overlap = 0.0 if iou_threshold is None else float(np.ravel(iou_threshold)[0])
    selected: list[tuple[int, int, int]] = []
    for image, scores_of_image in enumerate(scores):
        corners = _box_corners(boxes[image], center_point_box)
        for class_number, values in enumerate(scores_of_image):
            kept_boxes: list[int] = []
            for box in np.argsort(-values, kind="stable"):
                if len(kept_boxes) == max_boxes or values[box] <= min_score:
                    break
                if all(
                    _intersection_over_union(corners[box], corners[kept_box]) <= max_overlap
                    for kept_box in kept_boxes
                ):
                    kept_boxes.append(int(box))
            selected += [(image, class_number, box) for box in kept_boxes]
    return np.asarray(selected, np.int64).reshape(-1, 3)


def _box_corners(boxes: Numbers, is_centre: int) -> Numbers:
    """Returns boxes as [y1, x1, y2, x2], from two corners or from [x, y, width, height]."""
    if is_centre:
        centres, halves = boxes[:, 1::-1], boxes[:, :1:-1] / 2
        return np.concatenate([centres - halves, centres + halves], 1)
    first_corners, second_corners = boxes[:, :2], boxes[:, 2:]
    return np.concatenate(
        [np.minimum(first_corners, second_corners), np.maximum(first_corners, second_corners)], 1
    )


def _intersection_over_union(first_box: Numbers, second_box: Numbers) -> float:
    """Returns the intersection of two boxes divided by their union."""
    sides = np.minimum(first_box[2:], second_box[2:]) - np.maximum(first_box[:2], second_box[:2])
    shared_area = float(np.prod(np.maximum(sides, 0)))
    union_area = (
        float(np.prod(first_box[2:] - first_box[:2]) + np.prod(second_box[2:] - second_box[:2]))
        - shared_area
    )
    return shared_area / union_area if shared_area > 0 else 0.0


@operator("ImageDecoder", 20, folded=False)
def image_decoder(stream: Operand, pixel_format: str = "RGB") -> Operand:
    raise check.value_error(
        "ImageDecoder reads files of images, which no device can", "give the model decoded images"
    )
