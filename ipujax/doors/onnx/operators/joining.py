"""Concatenation, split, slice and padding operators."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Call, Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.arrays import (
    check_array_size,
    index_at_axis,
    normalize_axis,
    numpy_or_jax,
    to_int_tuple,
)
from ipujax.doors.onnx.operators.table import operator


@operator("Concat", 4)
def concat(*arrays: Operand, axis: int) -> Operand:
    return numpy_or_jax(*arrays).concatenate(arrays, axis)


@operator("Split", 2, static=("split",), takes_call=True)
def split(
    call: Call, x: Operand, split: Operand = None, axis: int = 0, num_outputs: int | None = None
) -> tuple[Operand, ...]:
    """Splits an array; sizes are an attribute before version 13, an input since, else equal.

    The last piece is smaller if the pieces cannot be equal.
    """
    axis = normalize_axis(axis, x.ndim)
    total_size, count = x.shape[axis], num_outputs or len(call.node.results)
    sizes = [-(-total_size // count)] * count if split is None else list(to_int_tuple(split))
    if split is None:
        sizes[-1] = total_size - sum(sizes[:-1])
    if sum(sizes) != total_size or min(sizes) < 0 or len(sizes) != len(call.node.results):
        raise check.value_error(
            f"pieces of {sizes} are asked for, {len(call.node.results)} of them, and there are "
            f"{total_size} elements",
            "give sizes with that sum",
        )
    ends = np.cumsum(sizes)
    return tuple(
        x[index_at_axis(axis, slice(end - size, end))]
        for size, end in zip(sizes, ends, strict=True)
    )


@operator("Slice", static=("starts", "ends", "axes", "steps"))
def slice_array(
    x: Operand, starts: Operand, ends: Operand, axes: Operand = None, steps: Operand = None
) -> Operand:
    """Slices an array; bounds and axes are attributes before version 10, inputs since."""
    firsts, lasts = to_int_tuple(starts), to_int_tuple(ends)
    over = range(len(firsts)) if axes is None else to_int_tuple(axes)
    by = [1] * len(firsts) if steps is None else to_int_tuple(steps)
    index = [slice(None)] * x.ndim
    for first, last, axis, step in zip(firsts, lasts, over, by, strict=True):
        axis = normalize_axis(axis, x.ndim)
        index[axis] = _python_slice(first, last, step, x.shape[axis])
    return x[tuple(index)]


def _python_slice(first: int, last: int, step: int, size: int) -> slice:
    """Converts an ONNX slice to a Python one; their negative steps end differently."""
    if step == 0:
        raise check.value_error("a step of a slice is 0", "give another")
    first, last = (bound + size if bound < 0 else bound for bound in (first, last))
    if step > 0:
        return slice(max(first, 0), max(last, 0), step)
    first = min(first, size - 1)
    return slice(first, None if last < 0 else last, step) if first >= 0 else slice(0, 0)


@operator("Pad", 2, static=("pads", "axes"))
def pad(
    x: jax.Array,
    pads: Operand,
    constant_value: Operand = None,
    axes: Operand = None,
    mode: str = "constant",
    value: float = 0.0,
) -> jax.Array:
    """Pads an array; amounts and value are attributes before version 11, inputs since.

    Negative amounts remove elements.
    """
    padded_axes = (
        range(x.ndim)
        if axes is None
        else [normalize_axis(axis, x.ndim) for axis in to_int_tuple(axes)]
    )
    amounts = np.reshape(to_int_tuple(pads), (2, len(padded_axes))).T
    widths = [(0, 0)] * x.ndim
    for axis, (low, high) in zip(padded_axes, amounts, strict=True):
        widths[axis] = (int(low), int(high))
    check_array_size([size + low + high for size, (low, high) in zip(x.shape, widths, strict=True)])
    if mode == "constant":
        filler = jnp.reshape(value if constant_value is None else constant_value, ())
        return jax.lax.pad(jnp.asarray(x), filler.astype(x.dtype), [(*w, 0) for w in widths])
    if mode not in ("reflect", "edge", "wrap"):
        raise check.value_error(f"mode is {mode!r}", "give 'constant', 'reflect', 'edge' or 'wrap'")
    removed_widths = [(min(low, 0), min(high, 0), 0) for low, high in widths]
    added_widths = [(max(low, 0), max(high, 0)) for low, high in widths]
    return jnp.pad(
        jax.lax.pad(jnp.asarray(x), jnp.zeros((), x.dtype), removed_widths), added_widths, mode=mode
    )


@operator("Compress", 9, static=("condition",))
def compress(x: Operand, condition: Operand, axis: int | None = None) -> Operand:
    """Selects elements along an axis by a condition; of the flat array without an axis."""
    (positions,) = np.nonzero(condition)
    return numpy_or_jax(x).take(x, positions, axis)


@operator("ReverseSequence", 10)
def reverse_sequence(
    x: jax.Array, lengths: jax.Array, batch_axis: int = 1, time_axis: int = 0
) -> jax.Array:
    """Reverses the first elements of each sequence, as many as it is long."""
    batch_axis, time_axis = normalize_axis(batch_axis, x.ndim), normalize_axis(time_axis, x.ndim)
    steps = jax.lax.broadcasted_iota(jnp.int32, x.shape, time_axis)
    lengths_by_axis = jnp.expand_dims(lengths, [a for a in range(x.ndim) if a != batch_axis])
    positions = jnp.where(steps < lengths_by_axis, lengths_by_axis - 1 - steps, steps)
    return jnp.take_along_axis(jnp.asarray(x), positions, time_axis)
