"""PyTorch sampling of images at the positions of a grid."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Operand
from ipujax.doors.kernels import cubic_pieces
from ipujax.doors.torch.operators.resampling import SHARPNESS
from ipujax.doors.torch.operators.table import operator

Array = jax.Array
_LINEAR, _NEAREST = 0, 1  # PyTorch's codes of interpolation modes; 2 is cubic
_ZEROS, _BORDER = 0, 1  # PyTorch's codes of padding modes; 2 is reflection


@operator("aten.affine_grid_generator.default")
def affine_grid(theta: Array, size: Sequence[int], align_corners: bool) -> Array:
    """Returns positions [batch, ..., dimensions] from -1 to 1, last dimension first."""
    lines: list[Operand] = []
    for count in size[:1:-1]:
        line = np.linspace(-1, 1, count) if count > 1 else np.zeros(1)
        lines.append(line if align_corners else line * (count - 1) / count)
    base = np.stack([*np.meshgrid(*lines, indexing="ij"), np.ones([len(n) for n in lines])], -1)
    base = base.transpose(*range(len(lines))[::-1], len(lines))
    return jnp.einsum("...j,nij->n...i", jnp.asarray(base, theta.dtype), theta)


@operator(
    "aten.grid_sampler.default", "aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default"
)  # fmt: skip
def grid_sampler(
    x: Array, grid: Array, interpolation: int, padding: int, align_corners: bool
) -> Array:
    sizes = x.shape[2:]
    positions = [  # in elements; the grid's last axis starts with the last dimension
        _unnormalize_coordinate(grid[..., -1 - axis], size, align_corners)
        for axis, size in enumerate(sizes)
    ]
    if interpolation in (_LINEAR, _NEAREST):
        positions = [
            _pad_position(p, size, padding, align_corners)
            for p, size in zip(positions, sizes, strict=True)
        ]
    if interpolation == _NEAREST:
        return _sample_corners(x, [jnp.round(p) for p in positions], padding, align_corners)
    taps = (0, 1) if interpolation == _LINEAR else (-1, 0, 1, 2)
    weigh = _linear_weight if interpolation == _LINEAR else _cubic_weight
    corners: list[Array] = []
    weight: Operand = 1
    for axis, position in enumerate(positions):
        # The taps along each dimension get their own axis.
        steps = np.reshape(
            taps, [-1 if dimension == axis else 1 for dimension in range(len(sizes))]
        )
        position = position.reshape(*position.shape, *[1] * len(sizes))
        corners.append(jnp.floor(jax.lax.stop_gradient(position)) + steps)
        weight = weight * weigh(position - corners[-1])
    values = _sample_corners(x, corners, padding, align_corners)
    return jnp.sum(values * weight[:, None], range(-len(sizes), 0))


def _linear_weight(distance: Array) -> Array:
    """Returns linear weights; at an element, the derivative is that of the piece to the right."""
    return jnp.where(distance >= 0, 1 - distance, 1 + distance)


def _cubic_weight(distance: Array) -> Array:
    x = jnp.where(distance >= 0, distance, -distance)
    near, far = cubic_pieces(x, SHARPNESS)
    return jnp.where(x <= 1, near, far)


def _unnormalize_coordinate(coordinate: Array, size: int, align_corners: bool) -> Array:
    if align_corners:
        return (coordinate + 1) * ((size - 1) / 2)
    return ((coordinate + 1) * size - 1) / 2


def _pad_position(position: Array, size: int, padding: int, align_corners: bool) -> Array:
    """Moves positions outside of the image to where their values come from."""
    if padding == _ZEROS:
        return position
    if padding != _BORDER:
        position = _reflect_position(position, size, align_corners)
    return jnp.where(position <= 0, 0, jnp.where(position >= size - 1, size - 1, position))


def _reflect_position(position: Array, size: int, align_corners: bool) -> Array:
    low, span = (0, size - 1) if align_corners else (-0.5, size)
    if span == 0:
        return jnp.zeros_like(position)
    offset = position - low
    offset = jnp.where(offset < 0, -offset, offset)
    flips = jnp.floor(jax.lax.stop_gradient(offset) / span)
    extra = offset - flips * span
    return jnp.where(flips % 2 == 0, extra, span - extra) + low


def _sample_corners(x: Array, corners: Sequence[Array], padding: int, align_corners: bool) -> Array:
    """Returns the elements at corner positions [batch, channels, ...]; 0 outside."""
    sizes = x.shape[2:]
    corners = [
        _pad_position(c, size, padding, align_corners)
        for c, size in zip(corners, sizes, strict=True)
    ]
    flat: Operand = 0
    is_inside: Operand = True
    for corner, size in zip(corners, sizes, strict=True):
        is_inside = is_inside & (corner >= 0) & (corner <= size - 1)
        flat = flat * size + jnp.clip(jnp.nan_to_num(corner), 0, size - 1).astype(jnp.int32)
    lines = x.reshape(*x.shape[:2], -1)
    sampled = jnp.take_along_axis(lines, flat.reshape(x.shape[0], 1, -1), 2)
    sampled = sampled.reshape(*x.shape[:2], *flat.shape[1:])
    return jnp.where(is_inside[:, None], sampled, 0)
