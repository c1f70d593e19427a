"""Views: tensors that are other tensors in another order, by slices, transpositions, repetitions.

A view moves no data; it is described by the element of its owner that each of its elements is. A
`Walk` describes this with nested loops over the owner, without extents, so a reshape changes
nothing. Where loops cannot describe it (the axes of a reshape that cut across those of a
transposition, and are transposed in turn), there is a walk over a walk.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from lowering.machine.cost import Operation

Strided: TypeAlias = tuple[int, int]
"""A loop: how often it turns, and how many elements of the owner each turn goes on."""

Axes: TypeAlias = list[tuple[Strided, ...]]
"""The loops of each axis, outer ones first."""


@dc.dataclass(frozen=True, slots=True)
class Walk:
    """The elements of a tensor that a view takes, in the view's row-major order.

    Attributes:
      over: how many elements the tensor has.
      start: the first element that is taken.
      loops: the loops over the others, outer loops first; none turns once only, and none can be
        merged, so that walks are equal if they take the same elements in the same order.
    """

    over: int
    start: int = 0
    loops: tuple[Strided, ...] = ()

    @property
    def moves_nothing(self) -> bool:
        """True if the view takes every element where it is."""
        return self == identity_walk(self.over)


View: TypeAlias = tuple[Walk, ...]
"""Walks over walks, the innermost last; `()` for a tensor as it lies."""


def identity_walk(elements: int) -> Walk:
    """Returns the walk over all elements of a tensor in order."""
    return Walk(elements, 0, ((elements, 1),) if elements > 1 else ())


@functools.lru_cache(maxsize=1 << 14)  # equal layers have equal views
def apply_to_view(view: View, operation: Operation, part: int = 0) -> View:
    """Returns the view of an operation's result, given the view of its operand.

    Args:
      view: the view of the operand.
      operation: one of `MOVES`; any other keeps the order of the elements.
      part: which of its results is meant.
    """
    elements = operation.operands[0].elements
    if operation.name not in MOVES or not elements or not operation.results[part].elements:
        return view
    below = view[:-1]
    walk = _apply_to_walk(view[-1] if view else identity_walk(elements), operation, part)
    if walk is None:  # in an order that is as it is
        below, walk = view, _apply_to_walk(identity_walk(elements), operation, part)
    return below if walk is None or walk.moves_nothing else (*below, walk)


def operand_shown_by(operation: Operation) -> int | None:
    """Returns the operand that the results of a view operation show; None if they need several."""
    if operation.name == "pad" and any(map(any, operation.param("padding_config", ()))):
        return None
    if operation.name in ("complex", "concatenate", "stack"):
        operands_with_elements = [i for i, shape in enumerate(operation.operands) if shape.elements]
        return operands_with_elements[0] if len(operands_with_elements) == 1 else None
    return 0


@functools.lru_cache(maxsize=4096)
def invert_view(view: View) -> View | None:
    """Returns the view that undoes another; None if that is no permutation of all elements."""
    walks: list[Walk] = []
    for walk in reversed(view):
        inverse_walk = _invert_walk(walk)
        if inverse_walk is None:
            return None
        walks.append(inverse_walk)
    return tuple(walks)


def _apply_to_walk(walk: Walk, operation: Operation, part: int) -> Walk | None:
    """Returns the walk of an operation's result; None if loops cannot describe it."""
    axes = _split_loops_by_axis(walk.loops, operation.operands[0].dims)
    change = MOVES[operation.name](axes, operation, part) if axes is not None else None
    if change is None:
        return None
    start, result_axes = change
    return Walk(
        walk.over, walk.start + start, _merge_loops(loop for axis in result_axes for loop in axis)
    )


def _split_loops_by_axis(loops: tuple[Strided, ...], dims: Sequence[int]) -> Axes | None:
    """Splits loops where the axes of a tensor begin; returns None if they have no such split."""
    remaining_loops, axes = list(loops), Axes()
    for extent in reversed(dims):
        axis: list[Strided] = []
        while extent > 1:
            turns, stride = remaining_loops.pop()
            common = math.gcd(turns, extent)
            if common not in (turns, extent):
                return None
            axis.append((common, stride))
            if common < turns:
                remaining_loops.append((turns // common, stride * common))
            extent //= common
        axes.append(tuple(reversed(axis)))
    return axes[::-1]


def _merge_loops(loops: Iterable[Strided]) -> tuple[Strided, ...]:
    """Merges loops that continue where another ends."""
    merged: list[Strided] = []
    for turns, stride in loops:
        if merged and merged[-1][1] == turns * stride:
            merged[-1] = (merged[-1][0] * turns, stride)
        elif turns > 1:
            merged.append((turns, stride))
    return tuple(merged)


def _invert_walk(walk: Walk) -> Walk | None:
    """Returns the walk back; None if not every element is taken just once."""
    step, loops = 1, list[tuple[int, int, int]]()
    for turns, stride in reversed(walk.loops):
        loops.append((stride, turns, step))
        step *= turns
    loops.sort(key=lambda loop: abs(loop[0]))
    reach, first, start = 1, 0, 0
    back: list[Strided] = []
    for stride, turns, step in loops:
        if abs(stride) != reach:
            return None
        reach *= turns
        if stride < 0:
            first += (turns - 1) * -stride
            start += (turns - 1) * step
        back.append((turns, step if stride > 0 else -step))
    if reach != walk.over or first != walk.start:
        return None
    return Walk(walk.over, start, _merge_loops(reversed(back)))


# The axes of a result in terms of its operand: the offset of the first element, and the loops.

_ChangedAxes: TypeAlias = tuple[int, Axes] | None


def _transpose_axes(axes: Axes, operation: Operation, part: int) -> _ChangedAxes:
    return 0, [axes[axis] for axis in operation.param("permutation")]


def _reverse_axes(axes: Axes, operation: Operation, part: int) -> _ChangedAxes:
    start = 0
    dimensions: Iterable[int] = operation.param("dimensions")
    for axis in dimensions:
        start += sum((turns - 1) * stride for turns, stride in axes[axis])
        axes[axis] = tuple((turns, -stride) for turns, stride in axes[axis])
    return start, axes


def _slice_axes(axes: Axes, operation: Operation, part: int) -> _ChangedAxes:
    steps = operation.param("strides") or (1,) * len(axes)
    ranges = zip(operation.param("start_indices"), operation.first_result.dims, steps, strict=True)
    return _take_ranges(axes, operation, dict(enumerate(ranges)))


def _take_part_of_axis(axes: Axes, operation: Operation, part: int) -> _ChangedAxes:
    sizes = operation.param("sizes")
    range_of_part = (sum(sizes[:part]), sizes[part], 1)
    return _take_ranges(axes, operation, {operation.param("axis"): range_of_part})


def _unstack_axis(axes: Axes, operation: Operation, part: int) -> _ChangedAxes:
    return _take_ranges(axes, operation, {operation.param("axis"): (part, 1, 1)})


def _take_ranges(
    axes: Axes, operation: Operation, ranges: Mapping[int, tuple[int, int, int]]
) -> _ChangedAxes:
    """Takes ranges of some axes: the first element, the number of elements, and the step."""
    start = 0
    for axis, (first, count, step) in ranges.items():
        if count == operation.operands[0].dims[axis] and step == 1:
            continue
        if len(axes[axis]) > 1:
            return None
        for _, stride in axes[axis]:
            start += first * stride
            axes[axis] = ((count, stride * step),)
    return start, axes


def _broadcast_axes(axes: Axes, operation: Operation, part: int) -> _ChangedAxes:
    """Repeats elements along new axes, and along those of one element."""
    dims, axis_of = operation.operands[0].dims, operation.param("broadcast_dimensions")
    results: Axes = [((extent, 0),) for extent in operation.first_result.dims]
    for axis, result in enumerate(axis_of):
        if dims[axis] == operation.first_result.dims[result]:
            results[result] = axes[axis]
    return 0, results


def _tile_axes(axes: Axes, operation: Operation, part: int) -> _ChangedAxes:
    return 0, [((n, 0), *axis) for n, axis in zip(operation.param("reps"), axes, strict=True)]


def _bitcast_axes(axes: Axes, operation: Operation, part: int) -> _ChangedAxes:
    """Places narrower elements at the one that they are part of; wider ones at their first."""
    operand_elements, result_elements = (
        operation.operands[0].elements,
        operation.first_result.elements,
    )
    if operand_elements > result_elements:
        return 0, axes[:-1]
    return 0, [*axes, ((result_elements // operand_elements, 0),)]


MOVES: Mapping[str, Callable[[Axes, Operation, int], _ChangedAxes]] = {
    "bitcast_convert_type": _bitcast_axes,
    "broadcast_in_dim": _broadcast_axes,
    "rev": _reverse_axes,
    "slice": _slice_axes,
    "split": _take_part_of_axis,
    "tile": _tile_axes,
    "transpose": _transpose_axes,
    "unstack": _unstack_axis,
}
"""The change of axes by primitive; all others of `VIEWS` keep the order of their operand."""
