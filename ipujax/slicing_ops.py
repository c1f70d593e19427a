"""Copies of row sequences between arrays, at offsets known when the program runs."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax._collectives import whole_number
from ipujax._operands import flag, known, refuse


def sequence_slice(
    dst: Any, src: Any, num_elems: Any, src_offsets: Any, dst_offsets: Any, zero_unused: bool
) -> jax.Array:
    """Copies slices of rows from one array into another (seed 001, 18.14.16).

    Slice i is `src[src_offsets[i] : src_offsets[i] + num_elems[i]]` and goes to
    `dst[dst_offsets[i]:]`. Where slices meet in `dst`, the last one wins (fact `slicing.pack`).

    Args:
      dst: `[rows, ...]`, rank 2 or more.
      src: `[rows, ...]`, of the same dtype and inner dimensions.
      num_elems: rows of each slice, `[slices]`, integers; a list or an array.
      src_offsets: its first row in `src`.
      dst_offsets: its first row in `dst`.
      zero_unused: whether rows of `dst` that no slice goes to become 0; otherwise they stay.

    Returns:
      An array like `dst`.

    Raises:
      OperatorError: (a `ValueError`) for arrays of other ranks or that do not match, counts and
        offsets of different lengths or none, or that are no integers; and for slices that leave
        their arrays, if their numbers are known while tracing. At run time, rows outside of
        either array are not copied.
      ConfigTypeError: (a `TypeError`) if `zero_unused` is no bool.
    """
    slices = _Slices("sequence_slice", num_elems, src_offsets, dst_offsets)
    target, source = _rows(dst, "dst", slices), _rows(src, "src", slices)
    _check_match(target, source, slices)
    unused = flag(zero_unused, "the zero_unused of sequence_slice")
    return _copied(target, source, slices, unused)


def sequence_slice_unpack(
    src: Any, num_elems: Any, src_offsets: Any, total_elements: int
) -> jax.Array:
    """Puts slices of rows one after the other (seed 001, 18.14.16).

    Args:
      src: `[rows, ...]`, rank 2 or more.
      num_elems: rows of each slice, `[slices]`, integers; a list or an array.
      src_offsets: its first row in `src`.
      total_elements: rows of the result, at least as many as the slices have together.

    Returns:
      `[total_elements, ...]`; rows that are left are 0.

    Raises:
      OperatorError: as in `sequence_slice`, and for a total less than 1.
      ConfigTypeError: (a `TypeError`) if the total is no integer.
    """
    slices = _Slices("sequence_slice_unpack", num_elems, src_offsets, None)
    source = _rows(src, "src", slices)
    what = "the total_elements of sequence_slice_unpack"
    total = whole_number(total_elements, what)
    if total < 1:
        raise refuse(f"{what} is {total}", "give the number of rows that the result has")
    target = jnp.zeros((total, *source.shape[1:]), source.dtype)
    return _copied(target, source, slices, True)


def sequence_slice_pack(
    dst: Any, src: Any, num_elems: Any, dst_offsets: Any, zero_unused: bool
) -> jax.Array:
    """Copies slices of rows that come one after the other (seed 001, 18.14.16).

    It undoes `sequence_slice_unpack`: the first `num_elems[0]` rows of `src` go to
    `dst[dst_offsets[0]:]`, the following `num_elems[1]` to `dst[dst_offsets[1]:]`, and so on.
    Arguments, result and errors are those of `sequence_slice`.
    """
    slices = _Slices("sequence_slice_pack", num_elems, None, dst_offsets)
    target, source = _rows(dst, "dst", slices), _rows(src, "src", slices)
    _check_match(target, source, slices)
    unused = flag(zero_unused, "the zero_unused of sequence_slice_pack")
    return _copied(target, source, slices, unused)


@dc.dataclass
class _Slices:
    """Counts and offsets, checked, as int32: NumPy arrays while known. None: one after another."""

    function: str
    num_elems: Any
    src_offsets: Any
    dst_offsets: Any

    def __post_init__(self) -> None:
        names = [name for name in ("num_elems", "src_offsets", "dst_offsets") if self._has(name)]
        arrays = [_numbers(getattr(self, name)) for name in names]
        for name, array in zip(names, arrays, strict=True):
            if not jnp.issubdtype(array.dtype, jnp.integer):
                raise refuse(
                    f"the {name} of {self.function} is {array.dtype}", "give integers, int32 say"
                )
        shapes = [array.shape for array in arrays]
        if len(set(shapes)) > 1 or len(shapes[0]) != 1 or not shapes[0][0]:
            given = ", ".join(f"{name} {list(s)}" for name, s in zip(names, shapes, strict=True))
            raise refuse(
                f"{self.function} needs matching non-zero rank-1 shapes, but got {given}",
                "give one count and one offset for each slice",
            )
        for name, array in zip(names, arrays, strict=True):
            setattr(self, name, array.astype(np.int32))
        follows = self.num_elems.cumsum(dtype=np.int32) - self.num_elems
        self.src_offsets = follows if self.src_offsets is None else self.src_offsets
        self.dst_offsets = follows if self.dst_offsets is None else self.dst_offsets

    def _has(self, name: str) -> bool:
        return getattr(self, name) is not None

    def check_inside(self, offsets: Any, rows: int, name: str) -> None:
        """Refuses slices that leave an array of so many rows, as far as their numbers are known."""
        starts, counts = known(offsets), known(self.num_elems)
        for bad in () if starts is None else starts[(starts < 0) | (starts > rows)]:
            raise self._outside(f"a slice at row {bad}", rows, name)
        for bad in () if counts is None else counts[counts < 0]:
            raise refuse(f"{self.function} got a slice of {bad} rows", "counts are 0 or more")
        if starts is None or counts is None:
            return
        for start, count in zip(starts, counts, strict=True):
            if start + count > rows:
                raise self._outside(f"a slice of {count} rows at row {start}", rows, name)

    def _outside(self, what: str, rows: int, name: str) -> Exception:
        return refuse(
            f"{self.function} got {what}, but {name} has {rows} rows",
            "slices must lie inside of their arrays",
        )


def _numbers(values: Any) -> Any:
    numbers = known(values)  # operations of JAX would make them unknown
    return jnp.asarray(values) if numbers is None else numbers


def _rows(x: Any, name: str, slices: _Slices) -> jax.Array:
    array = jnp.asarray(x)
    if array.ndim < 2 or not array.shape[0]:
        raise refuse(
            f"the {name} of {slices.function} has shape {list(array.shape)}",
            "give it at least two dimensions, the first one rows, and at least one row",
        )
    return array


def _check_match(dst: jax.Array, src: jax.Array, slices: _Slices) -> None:
    if dst.shape[1:] != src.shape[1:] or dst.dtype != src.dtype:
        raise refuse(
            f"{slices.function} got dst {dst.dtype}{list(dst.shape)} and src "
            f"{src.dtype}{list(src.shape)}",
            "they must have the same dtype and the same dimensions but for the first",
        )


def _copied(dst: jax.Array, src: jax.Array, slices: _Slices, zero_unused: bool) -> jax.Array:
    slices.check_inside(slices.src_offsets, len(src), "src")
    slices.check_inside(slices.dst_offsets, len(dst), "dst")
    # Each row of dst finds the last slice that goes there: one lookup, whatever the slices are.
    row = jnp.arange(len(dst), dtype=jnp.int32)
    shift = jnp.asarray(slices.src_offsets - slices.dst_offsets)
    first = slices.dst_offsets + jnp.maximum(-slices.src_offsets, 0)  # the part inside of src
    end = slices.dst_offsets + jnp.minimum(slices.num_elems, len(src) - slices.src_offsets)
    inside = (row[:, None] >= first) & (row[:, None] < end)
    numbers = jnp.arange(len(first), dtype=jnp.int32)
    last = jnp.max(jnp.where(inside, numbers, -1), axis=1)
    taken = src.at[row + shift[last]].get(mode="clip")
    others = jnp.zeros_like(dst) if zero_unused else dst
    return jnp.where((last >= 0).reshape(-1, *(1,) * (dst.ndim - 1)), taken, others)
