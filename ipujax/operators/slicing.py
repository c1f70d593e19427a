"""Copies of row sequences between arrays, at offsets known when the program runs."""

from __future__ import annotations

import dataclasses as dc

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ipujax.ground import PyTree, check, values_if_known


@check.guard
def sequence_slice(
    dst: object,
    src: object,
    num_elems: object,
    src_offsets: object,
    dst_offsets: object,
    zero_unused: bool,
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
    offsets = {"src_offsets": src_offsets, "dst_offsets": dst_offsets}
    slices = _check_slices("sequence_slice", num_elems=num_elems, **offsets)
    return _check_and_copy_slices(dst, src, slices, zero_unused)


@check.guard
def sequence_slice_unpack(
    src: PyTree, num_elems: object, src_offsets: object, total_elements: int
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
      OperatorError: as in `sequence_slice`, and for a total less than 1, or less than the slices
        have together, if their numbers are known while tracing.
      ConfigTypeError: (a `TypeError`) if the total is no integer.
    """
    slices = _check_slices("sequence_slice_unpack", num_elems=num_elems, src_offsets=src_offsets)
    source = _check_row_array(src, "src", slices)
    argument = "the total_elements of sequence_slice_unpack"
    total = check.require_integer(total_elements, argument)
    if total < 1:
        raise check.value_error(
            f"{argument} is {total}", "give the number of rows that the result has"
        )
    counts = values_if_known(slices.num_elems)
    if counts is not None and counts.sum() > total:
        raise check.value_error(
            f"{argument} is {total}, but the slices have {counts.sum()} rows",
            "give at least as many rows as the slices have together",
        )
    target = jnp.zeros((total, *source.shape[1:]), source.dtype)
    return _copy_slices(target, source, slices, True)


@check.guard
def sequence_slice_pack(
    dst: object, src: object, num_elems: object, dst_offsets: object, zero_unused: bool
) -> jax.Array:
    """Copies slices of rows that come one after the other (seed 001, 18.14.16).

    It undoes `sequence_slice_unpack`: the first `num_elems[0]` rows of `src` go to
    `dst[dst_offsets[0]:]`, the following `num_elems[1]` to `dst[dst_offsets[1]:]`, and so on.
    Arguments, result and errors are those of `sequence_slice`.
    """
    slices = _check_slices("sequence_slice_pack", num_elems=num_elems, dst_offsets=dst_offsets)
    return _check_and_copy_slices(dst, src, slices, zero_unused)


@dc.dataclass(frozen=True)
class _Slices:
    """Counts and offsets of slices, as long as one another: NumPy arrays while known."""

    function: str
    num_elems: jax.Array | np.ndarray
    src_offsets: jax.Array | np.ndarray
    dst_offsets: jax.Array | np.ndarray

    def check_slices_inside(self, offsets: object, rows: int, name: str) -> None:
        """Raises an error for slices outside an array of `rows` rows, if they are known."""
        starts, counts = values_if_known(offsets), values_if_known(self.num_elems)
        for bad in () if starts is None else starts[(starts < 0) | (starts > rows)]:
            raise self._outside_error(f"a slice at row {bad}", rows, name)
        for bad in () if counts is None else counts[counts < 0]:
            raise check.value_error(
                f"{self.function} got a slice of {bad} rows", "counts are 0 or more"
            )
        for bad in () if counts is None else counts[counts > rows]:
            raise self._outside_error(f"a slice of {bad} rows", rows, name)
        if starts is None or counts is None:
            return
        for start, count in zip(starts, counts, strict=True):
            if start + count > rows:
                raise self._outside_error(f"a slice of {count} rows at row {start}", rows, name)

    def _outside_error(self, slice_description: str, rows: int, name: str) -> Exception:
        return check.value_error(
            f"{self.function} got {slice_description}, but {name} has {rows} rows",
            "slices must lie inside of their arrays",
        )


def _check_slices(function: str, **arguments: object) -> _Slices:
    """Checks the slices of a call; missing offsets place them one after another."""
    numbers = {
        name: _check_slice_numbers(f"the {name} of {function}", x) for name, x in arguments.items()
    }
    shapes = [x.shape for x in numbers.values()]
    if len(set(shapes)) > 1 or len(shapes[0]) != 1 or not shapes[0][0]:
        shapes_text = ", ".join(f"{name} {list(x.shape)}" for name, x in numbers.items())
        raise check.value_error(
            f"{function} needs matching non-zero rank-1 shapes, but got {shapes_text}",
            "give one count and one offset for each slice",
        )
    counts = numbers["num_elems"]
    follows = counts.cumsum() - counts
    return _Slices(function, **{"src_offsets": follows, "dst_offsets": follows, **numbers})


def _check_slice_numbers(argument: str, values: PyTree) -> PyTree:
    # Operations of JAX would make known numbers unknown; as int64, none wraps before it is checked.
    concrete = values_if_known(values)
    numbers = check.require_array(values, argument) if concrete is None else concrete
    if not jnp.issubdtype(numbers.dtype, jnp.integer):
        raise check.value_error(f"{argument} is {numbers.dtype}", "give integers, int32 say")
    return numbers.astype(np.int32 if concrete is None else np.int64)


def _check_row_array(x: ArrayLike, name: str, slices: _Slices) -> jax.Array:
    rows = check.require_array(x, f"the {name} of {slices.function}")
    if rows.ndim < 2 or not rows.shape[0]:
        raise check.value_error(
            f"the {name} of {slices.function} has shape {list(rows.shape)}",
            "give it at least two dimensions, the first one rows, and at least one row",
        )
    return rows


def _check_and_copy_slices(
    dst: PyTree, src: PyTree, slices: _Slices, zero_unused: object
) -> jax.Array:
    target, source = _check_row_array(dst, "dst", slices), _check_row_array(src, "src", slices)
    if target.shape[1:] != source.shape[1:] or target.dtype != source.dtype:
        raise check.value_error(
            f"{slices.function} got dst {target.dtype}{list(target.shape)} and src "
            f"{source.dtype}{list(source.shape)}",
            "they must have the same dtype and the same dimensions but for the first",
        )
    unused = check.require_flag(zero_unused, f"the zero_unused of {slices.function}")
    return _copy_slices(target, source, slices, unused)


def _copy_slices(dst: jax.Array, src: jax.Array, slices: _Slices, zero_unused: bool) -> jax.Array:
    slices.check_slices_inside(slices.src_offsets, len(src), "src")
    slices.check_slices_inside(slices.dst_offsets, len(dst), "dst")
    count, start, end = (
        jnp.asarray(numbers, jnp.int32)
        for numbers in (slices.num_elems, slices.src_offsets, slices.dst_offsets)
    )
    # Each row of dst finds the last slice that goes there: one lookup, whatever the slices are.
    row = jnp.arange(len(dst), dtype=jnp.int32)
    first = end + jnp.maximum(-start, 0)  # the part of the slice that is inside of src
    behind = end + jnp.minimum(count, len(src) - start)
    inside = (row[:, None] >= first) & (row[:, None] < behind)
    numbers = jnp.arange(len(first), dtype=jnp.int32)
    last = jnp.max(jnp.where(inside, numbers, -1), axis=1)
    copied_rows = src.at[row + (start - end)[last]].get(mode="clip")
    other_rows = jnp.zeros_like(dst) if zero_unused else dst
    return jnp.where((last >= 0).reshape(-1, *(1,) * (dst.ndim - 1)), copied_rows, other_rows)
