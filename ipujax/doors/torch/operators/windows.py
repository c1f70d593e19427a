"""PyTorch padding and windows of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ipujax.doors.torch.operators.table import operator

_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
_MODE_NUMBERS = ("constant", "reflect", "replicate", "circular")


@operator("aten.pad.default")
def pad(
    x: jax.Array, widths: Sequence[int], mode: str = "constant", value: float | None = None
) -> jax.Array:
    """Pads a tensor by widths before and after, from the last axis to the first.

    Negative widths remove elements.
    """
    pairs = list(zip(widths[::2], widths[1::2], strict=True))[::-1]
    pairs = [(0, 0)] * (x.ndim - len(pairs)) + pairs
    if mode == "constant":
        filling = jnp.asarray(0 if value is None else value, x.dtype)
        return jax.lax.pad(x, filling, [(low, high, 0) for low, high in pairs])
    wider = jnp.pad(x, [(max(low, 0), max(high, 0)) for low, high in pairs], mode=_MODES[mode])
    cuts = [(max(-low, 0), max(-high, 0)) for low, high in pairs]
    slices = [slice(low, size - high) for (low, high), size in zip(cuts, wider.shape, strict=True)]
    return wider[tuple(slices)]


@operator("aten.constant_pad_nd.default")
def constant_pad(x: jax.Array, widths: Sequence[int], value: ArrayLike = 0) -> jax.Array:
    return pad(x, widths, "constant", value)


@operator(*(f"aten.reflection_pad{n}d.default" for n in (1, 2, 3)))
def reflection_pad(x: jax.Array, widths: Sequence[int]) -> jax.Array:
    return pad(x, widths, "reflect")


@operator(*(f"aten.replication_pad{n}d.default" for n in (1, 2, 3)))
def replication_pad(x: jax.Array, widths: Sequence[int]) -> jax.Array:
    return pad(x, widths, "replicate")


@operator("aten._pad_circular.default")
def circular_pad(x: jax.Array, widths: Sequence[int]) -> jax.Array:
    return pad(x, widths, "circular")


@operator("aten._pad_enum.default")
def pad_of_mode(
    x: jax.Array, widths: Sequence[int], mode: int, value: float | None = None
) -> jax.Array:
    return pad(x, widths, _MODE_NUMBERS[mode], value)


@operator("aten.unfold.default", "aten.unfold_copy.default")
def unfold(x: jax.Array, axis: int, size: int, step: int) -> jax.Array:
    """Returns windows of one axis as a new last axis."""
    if not x.ndim:
        return x.reshape(1)[:size]
    axis %= x.ndim
    starts = np.arange(0, x.shape[axis] - size + 1, step)
    windows = jnp.take(x, starts[:, None] + np.arange(size), axis)
    return jnp.moveaxis(windows, axis + 1, -1)


@operator("aten.im2col.default")
def im2col(
    x: jax.Array,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> jax.Array:
    """Returns the windows of an image as columns: `[..., channels * kernel, windows]`."""
    *batch, channels, height, width = x.shape
    images = x.reshape(math.prod(batch), channels, height, width)
    patches = jax.lax.conv_general_dilated_patches(
        images, kernel, stride, [(p, p) for p in padding], rhs_dilation=dilation,
        precision=jax.lax.Precision.HIGHEST,
    )  # fmt: skip
    return patches.reshape(*batch, patches.shape[1], math.prod(patches.shape[2:]))


@operator("aten.col2im.default")
def col2im(
    columns: jax.Array,
    size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> jax.Array:
    """Adds windows at their positions in an image: the transpose of `im2col`."""
    channels = columns.shape[-2] // (kernel[0] * kernel[1])
    image = jax.ShapeDtypeStruct((*columns.shape[:-2], channels, *size), columns.dtype)
    fold_windows = jax.linear_transpose(
        lambda x: im2col(x, kernel, dilation, padding, stride), image
    )
    (image_sum,) = fold_windows(columns)
    return image_sum
