"""ONNX operators that change or return shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.arrays import (
    check_array_size,
    normalize_axis,
    numpy_or_jax,
    to_int_tuple,
)
from ipujax.doors.onnx.operators.table import operator


@operator("Shape")
def shape(x: Operand, start: int = 0, end: int | None = None) -> Operand:
    return np.asarray(np.shape(x)[start:end], np.int64)


@operator("Size")
def size(x: Operand) -> Operand:
    return np.asarray(math.prod(np.shape(x)), np.int64)


@operator("Reshape", 5, static=("shape",))
def reshape(x: Operand, shape: Operand, allowzero: int = 0) -> Operand:
    sizes = to_int_tuple(shape)
    if sizes.count(-1) > 1:
        raise check.value_error(
            f"shape input to ReshapeOp can only use -1 to specify one unknown dimension: {sizes}",
            "give the other sizes",
        )
    if not allowzero:
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return numpy_or_jax(x).reshape(x, sizes)


@operator("Flatten")
def flatten(x: Operand, axis: int = 1) -> Operand:
    start = normalize_axis(axis, x.ndim) if axis < 0 else axis
    return numpy_or_jax(x).reshape(x, (math.prod(x.shape[:start]), math.prod(x.shape[start:])))


@operator("Squeeze", static=("axes",))
def squeeze(x: Operand, axes: Operand = None) -> Operand:
    """Removes axes of size one; axes are an attribute before version 13, an input since."""
    return numpy_or_jax(x).squeeze(x, None if axes is None else to_int_tuple(axes))


@operator("Unsqueeze", static=("axes",))
def unsqueeze(x: Operand, axes: Operand) -> Operand:
    """Inserts axes of size one; axes are an attribute before version 13, an input since."""
    return numpy_or_jax(x).expand_dims(x, to_int_tuple(axes))


@operator("Transpose")
def transpose(x: Operand, perm: Sequence[int] | None = None) -> Operand:
    if perm is not None and len(perm) != x.ndim:
        raise check.value_error(
            f"Rank of permutation tensor {_format_shape(perm)}, rank {len(perm)} must be equal to "
            f"rank of input tensor, shape {_format_shape(x.shape)}, rank {x.ndim}."
        )
    return numpy_or_jax(x).transpose(x, perm)


@operator("Expand", 8, static=("shape",))
def expand(x: Operand, shape: Operand) -> Operand:
    try:
        full_shape = np.broadcast_shapes(x.shape, to_int_tuple(shape))
    except ValueError as error:
        raise check.value_error(
            f"an array of shape {x.shape} is expanded to {to_int_tuple(shape)}: corresponding "
            "dimensions must have the same value or one of them must be 1",
            "give another shape",
        ) from error
    return numpy_or_jax(x).broadcast_to(x, check_array_size(full_shape))


@operator("Tile", 6, static=("repeats",))
def tile(x: Operand, repeats: Operand) -> Operand:
    times = to_int_tuple(repeats)
    if len(times) != x.ndim:
        raise check.value_error(
            f"the repeats {times} of an array of shape {x.shape} should have one element for each "
            "dimension of the data tensor",
            "give as many numbers as the array has axes",
        )
    check_array_size([size * time for size, time in zip(x.shape, times, strict=True)])
    return numpy_or_jax(x).tile(x, times)


@operator("DepthToSpace")
def depth_to_space(x: jax.Array, blocksize: int, mode: str = "DCR") -> jax.Array:
    n, c, h, w = x.shape
    small = c // blocksize**2
    if _is_depth_first(mode):
        split = jnp.reshape(x, (n, blocksize, blocksize, small, h, w)).transpose(0, 3, 4, 1, 5, 2)
    else:
        split = jnp.reshape(x, (n, small, blocksize, blocksize, h, w)).transpose(0, 1, 4, 2, 5, 3)
    return split.reshape(n, small, h * blocksize, w * blocksize)


@operator("SpaceToDepth")
def space_to_depth(x: jax.Array, blocksize: int, mode: str = "DCR") -> jax.Array:
    n, c, h, w = x.shape
    high, wide = h // blocksize, w // blocksize
    split = jnp.reshape(x, (n, c, high, blocksize, wide, blocksize))
    order = (0, 3, 5, 1, 2, 4) if _is_depth_first(mode) else (0, 1, 3, 5, 2, 4)
    return split.transpose(order).reshape(n, c * blocksize**2, high, wide)


def _format_shape(numbers: Sequence[int]) -> str:
    return f"[{' '.join(map(str, numbers))}]"


def _is_depth_first(mode: str) -> bool:
    if mode not in ("DCR", "CRD"):
        raise check.value_error(f"mode is {mode!r}", "give 'DCR' or 'CRD'")
    return mode == "DCR"
