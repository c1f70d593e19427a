"""Operators that join arrays, cut them into pieces, or widen them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Call
from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.arrays import along, axis_of, ints, library, limited
from ipujax.frontends.onnx.operators.table import operator


@operator("Concat", 4)
def concat(*arrays: Any, axis: int) -> Any:
    return library(*arrays).concatenate(arrays, axis)


@operator("Split", 2, static=("split",))
def split(
    call: Call, x: Any, split: Any = None, axis: int = 0, num_outputs: int | None = None
) -> tuple[Any, ...]:
    """Sizes are an attribute before version 13, and an input since; by default they are equal.

    The last is smaller where they cannot be.
    """
    axis = axis_of(axis, x.ndim)
    whole, count = x.shape[axis], num_outputs or len(call.node.results)
    sizes = [-(-whole // count)] * count if split is None else list(ints(split))
    if split is None:
        sizes[-1] = whole - sum(sizes[:-1])
    if sum(sizes) != whole or min(sizes) < 0 or len(sizes) != len(call.node.results):
        raise check.refuse(
            f"pieces of {sizes} are asked for, {len(call.node.results)} of them, and there are "
            f"{whole} elements",
            "give sizes whose sum is that",
        )
    ends = np.cumsum(sizes)
    return tuple(
        x[along(axis, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)
    )


@operator("Slice", static=("starts", "ends", "axes", "steps"))
def slice_of(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    """Where and along what are attributes before version 10, and inputs since."""
    firsts, lasts = ints(starts), ints(ends)
    over = range(len(firsts)) if axes is None else ints(axes)
    by = [1] * len(firsts) if steps is None else ints(steps)
    index = [slice(None)] * x.ndim
    for first, last, axis, step in zip(firsts, lasts, over, by, strict=True):
        axis = axis_of(axis, x.ndim)
        index[axis] = _from_to(first, last, step, x.shape[axis])
    return x[tuple(index)]


def _from_to(first: int, last: int, step: int, size: int) -> slice:
    """A slice of ONNX as Python's: with a negative step, an end before the first is at -1."""
    if step == 0:
        raise check.refuse("a step of a slice is 0", "give another")
    first, last = (place + size if place < 0 else place for place in (first, last))
    if step > 0:
        return slice(max(first, 0), max(last, 0), step)
    first = min(first, size - 1)
    return slice(first, None if last < 0 else last, step) if first >= 0 else slice(0, 0)


@operator("Pad", 2, static=("pads", "axes"))
def pad(
    x: jax.Array,
    pads: Any,
    constant_value: Any = None,
    axes: Any = None,
    mode: str = "constant",
    value: float = 0.0,
) -> jax.Array:
    """Amounts and value are attributes before version 11, and inputs since.

    Negative amounts take elements away.
    """
    over = range(x.ndim) if axes is None else [axis_of(axis, x.ndim) for axis in ints(axes)]
    amounts = np.reshape(ints(pads), (2, len(over))).T
    widths = [(0, 0)] * x.ndim
    for axis, (low, high) in zip(over, amounts, strict=True):
        widths[axis] = (int(low), int(high))
    limited([size + low + high for size, (low, high) in zip(x.shape, widths, strict=True)])
    if mode == "constant":
        filler = jnp.reshape(value if constant_value is None else constant_value, ())
        return jax.lax.pad(jnp.asarray(x), filler.astype(x.dtype), [(*w, 0) for w in widths])
    if mode not in ("reflect", "edge", "wrap"):
        raise check.refuse(f"mode is {mode!r}", "give 'constant', 'reflect', 'edge' or 'wrap'")
    less = [(min(low, 0), min(high, 0), 0) for low, high in widths]
    more = [(max(low, 0), max(high, 0)) for low, high in widths]
    return jnp.pad(jax.lax.pad(jnp.asarray(x), jnp.zeros((), x.dtype), less), more, mode=mode)


@operator("Compress", 9, static=("condition",))
def compress(x: Any, condition: Any, axis: int | None = None) -> Any:
    """What a condition selects; of the flat array if there is no axis."""
    (places,) = np.nonzero(condition)
    return library(x).take(x, places, axis)


@operator("ReverseSequence", 10)
def reverse_sequence(
    x: jax.Array, lengths: jax.Array, batch_axis: int = 1, time_axis: int = 0
) -> jax.Array:
    """The first elements of each sequence, as many as it is long, in the opposite order."""
    batch_axis, time_axis = axis_of(batch_axis, x.ndim), axis_of(time_axis, x.ndim)
    steps = jax.lax.broadcasted_iota(jnp.int32, x.shape, time_axis)
    each = jnp.expand_dims(lengths, [a for a in range(x.ndim) if a != batch_axis])
    places = jnp.where(steps < each, each - 1 - steps, steps)
    return jnp.take_along_axis(jnp.asarray(x), places, time_axis)
