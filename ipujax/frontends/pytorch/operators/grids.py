"""Images at the places that a grid tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.frontends.pytorch.operators.resampling import SHARPNESS, cubic_pieces
from ipujax.frontends.pytorch.operators.table import operator

Array = jax.Array
_LINEAR, _NEAREST = 0, 1  # PyTorch's numbers for interpolations; 2 is cubic
_ZEROS, _BORDER = 0, 1  # and for paddings; 2 is reflection


@operator("aten.affine_grid_generator.default")
def affine_grid(theta: Array, size: Sequence[int], align_corners: bool) -> Array:
    """Places [batch, ..., dimensions] from -1 to 1, the last dimension's coordinate first."""
    lines: list[Any] = []
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
    places = [  # in elements; the grid has the last dimension's first
        _place(grid[..., -1 - axis], size, align_corners) for axis, size in enumerate(sizes)
    ]
    if interpolation in (_LINEAR, _NEAREST):
        places = [
            _padded(p, size, padding, align_corners) for p, size in zip(places, sizes, strict=True)
        ]
    if interpolation == _NEAREST:
        return _values(x, [jnp.round(p) for p in places], padding, align_corners)
    taps = (0, 1) if interpolation == _LINEAR else (-1, 0, 1, 2)
    weigh = _linear if interpolation == _LINEAR else _cubic
    corners: list[Array] = []
    weight: Any = 1
    for axis, place in enumerate(places):
        # The taps along each dimension are an axis of their own.
        steps = np.reshape(taps, [-1 if other == axis else 1 for other in range(len(sizes))])
        place = place.reshape(*place.shape, *[1] * len(sizes))
        corners.append(jnp.floor(jax.lax.stop_gradient(place)) + steps)
        weight = weight * weigh(place - corners[-1])
    values = _values(x, corners, padding, align_corners)
    return jnp.sum(values * weight[:, None], range(-len(sizes), 0))


def _linear(distance: Array) -> Array:
    """The weight; its derivative on an element is that of the piece to the right."""
    return jnp.where(distance >= 0, 1 - distance, 1 + distance)


def _cubic(distance: Array) -> Array:
    x = jnp.where(distance >= 0, distance, -distance)
    near, far = cubic_pieces(x, SHARPNESS)
    return jnp.where(x <= 1, near, far)


def _place(coordinate: Array, size: int, align_corners: bool) -> Array:
    if align_corners:
        return (coordinate + 1) * ((size - 1) / 2)
    return ((coordinate + 1) * size - 1) / 2


def _padded(place: Array, size: int, padding: int, align_corners: bool) -> Array:
    """Places outside moved to where their values come from."""
    if padding == _ZEROS:
        return place
    if padding != _BORDER:
        place = _reflected(place, size, align_corners)
    return jnp.where(place <= 0, 0, jnp.where(place >= size - 1, size - 1, place))


def _reflected(place: Array, size: int, align_corners: bool) -> Array:
    low, span = (0, size - 1) if align_corners else (-0.5, size)
    if span == 0:
        return jnp.zeros_like(place)
    offset = place - low
    offset = jnp.where(offset < 0, -offset, offset)
    flips = jnp.floor(jax.lax.stop_gradient(offset) / span)
    extra = offset - flips * span
    return jnp.where(flips % 2 == 0, extra, span - extra) + low


def _values(x: Array, corners: Sequence[Array], padding: int, align_corners: bool) -> Array:
    """The elements at some corners [batch, channels, ...]; 0 outside."""
    sizes = x.shape[2:]
    corners = [
        _padded(c, size, padding, align_corners) for c, size in zip(corners, sizes, strict=True)
    ]
    flat: Any = 0
    is_inside: Any = True
    for corner, size in zip(corners, sizes, strict=True):
        is_inside = is_inside & (corner >= 0) & (corner <= size - 1)
        flat = flat * size + jnp.clip(jnp.nan_to_num(corner), 0, size - 1).astype(jnp.int32)
    lines = x.reshape(*x.shape[:2], -1)
    picked = jnp.take_along_axis(lines, flat.reshape(x.shape[0], 1, -1), 2)
    picked = picked.reshape(*x.shape[:2], *flat.shape[1:])
    return jnp.where(is_inside[:, None], picked, 0)
