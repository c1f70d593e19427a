"""Tensors that are other tensors seen in another order: slices, transpositions, repetitions.

A tensor that is a view moves nothing; what matters is which element of its owner each of its
elements is. A `Walk` says so for one, as nested loops over the owner, and knows nothing of extents:
a reshape changes none of it. Where loops cannot say it (the axes of a reshape that cut across those
of a transposition, and are transposed in turn), there is a walk over a walk.
"""

from __future__ import annotations

import dataclasses as dc
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
    """Which elements of a tensor the elements of a view are, in the view's row-major order.

    Attributes:
      over: how many elements the tensor has.
      start: the first.
      loops: how it goes on, outer loops first; none turns once only, and no two are one, so that
        walks are equal if they take the same elements in the same order.
    """

    over: int
    start: int = 0
    loops: tuple[Strided, ...] = ()

    @property
    def moves_nothing(self) -> bool:
        """Whether it takes every element where it is."""
        return self == whole(self.over)


View: TypeAlias = tuple[Walk, ...]
"""Walks over walks, the innermost last; `()` for a tensor as it lies."""


def whole(elements: int) -> Walk:
    """All elements in order."""
    return Walk(elements, 0, ((elements, 1),) if elements > 1 else ())


def seen(view: View, operation: Operation, part: int = 0) -> View:
    """A view as an operation that moves nothing shows it.

    Args:
      view: of the operand.
      operation: one of `MOVES`; any other keeps the order of the elements.
      part: which of its results is meant.
    """
    elements = operation.operands[0].elements
    if operation.name not in MOVES or not elements or not operation.results[part].elements:
        return view
    below = view[:-1]
    walk = _moved(view[-1] if view else whole(elements), operation, part)
    if walk is None:  # in an order that is as it is
        below, walk = view, _moved(whole(elements), operation, part)
    return below if walk is None or walk.moves_nothing else (*below, walk)


def shown_of(operation: Operation) -> int | None:
    """Which operand the results of an operation of `VIEWS` show; None if they need several."""
    if operation.name == "pad" and any(map(any, operation.param("padding_config", ()))):
        return None
    if operation.name in ("complex", "concatenate", "stack"):
        wanted = [i for i, shape in enumerate(operation.operands) if shape.elements]
        return wanted[0] if len(wanted) == 1 else None
    return 0


def inverse(view: View) -> View | None:
    """The view that undoes another; None if that is no permutation of all elements."""
    walks: list[Walk] = []
    for walk in reversed(view):
        back = _inverse(walk)
        if back is None:
            return None
        walks.append(back)
    return tuple(walks)


def _moved(walk: Walk, operation: Operation, part: int) -> Walk | None:
    """The walk behind an operation; None if loops cannot say it."""
    axes = _by_axes(walk.loops, operation.operands[0].dims)
    change = MOVES[operation.name](axes, operation, part) if axes is not None else None
    if change is None:
        return None
    start, moved = change
    return Walk(walk.over, walk.start + start, _joined(loop for axis in moved for loop in axis))


def _by_axes(loops: tuple[Strided, ...], dims: Sequence[int]) -> Axes | None:
    """The loops cut where the axes of a tensor begin; None if they have no cut there."""
    left, axes = list(loops), Axes()
    for extent in reversed(dims):
        axis: list[Strided] = []
        while extent > 1:
            turns, stride = left.pop()
            inner = math.gcd(turns, extent)
            if inner not in (turns, extent):
                return None
            axis.append((inner, stride))
            if inner < turns:
                left.append((turns // inner, stride * inner))
            extent //= inner
        axes.append(tuple(reversed(axis)))
    return axes[::-1]


def _joined(loops: Iterable[Strided]) -> tuple[Strided, ...]:
    """The loops with those as one that go on where another ends."""
    joined: list[Strided] = []
    for turns, stride in loops:
        if joined and joined[-1][1] == turns * stride:
            joined[-1] = (joined[-1][0] * turns, stride)
        elif turns > 1:
            joined.append((turns, stride))
    return tuple(joined)


def _inverse(walk: Walk) -> Walk | None:
    """The walk back, loops by their strides; None if not every element is taken just once."""
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
    return Walk(walk.over, start, _joined(reversed(back)))


# What operations do to the axes of their operand: where the first element is now, and the loops.

_Moved: TypeAlias = tuple[int, Axes] | None


def _transposed(axes: Axes, operation: Operation, part: int) -> _Moved:
    return 0, [axes[axis] for axis in operation.param("permutation")]


def _reversed(axes: Axes, operation: Operation, part: int) -> _Moved:
    start = 0
    for axis in operation.param("dimensions"):
        start += sum((turns - 1) * stride for turns, stride in axes[axis])
        axes[axis] = tuple((turns, -stride) for turns, stride in axes[axis])
    return start, axes


def _sliced(axes: Axes, operation: Operation, part: int) -> _Moved:
    steps = operation.param("strides") or (1,) * len(axes)
    taken = zip(operation.param("start_indices"), operation.result.dims, steps, strict=True)
    return _cut(axes, operation, dict(enumerate(taken)))


def _split(axes: Axes, operation: Operation, part: int) -> _Moved:
    sizes = operation.param("sizes")
    taken = (sum(sizes[:part]), sizes[part], 1)
    return _cut(axes, operation, {operation.param("axis"): taken})


def _unstacked(axes: Axes, operation: Operation, part: int) -> _Moved:
    return _cut(axes, operation, {operation.param("axis"): (part, 1, 1)})


def _cut(axes: Axes, operation: Operation, taken: Mapping[int, tuple[int, int, int]]) -> _Moved:
    """Of some axes, so many elements from one on, with steps."""
    start = 0
    for axis, (first, count, step) in taken.items():
        if count == operation.operands[0].dims[axis] and step == 1:
            continue
        if len(axes[axis]) > 1:
            return None
        for _, stride in axes[axis]:
            start += first * stride
            axes[axis] = ((count, stride * step),)
    return start, axes


def _repeated(axes: Axes, operation: Operation, part: int) -> _Moved:
    """Along new axes, and along those of one element."""
    dims, axis_of = operation.operands[0].dims, operation.param("broadcast_dimensions")
    results: Axes = [((extent, 0),) for extent in operation.result.dims]
    for axis, result in enumerate(axis_of):
        if dims[axis] == operation.result.dims[result]:
            results[result] = axes[axis]
    return 0, results


def _tiled(axes: Axes, operation: Operation, part: int) -> _Moved:
    return 0, [((n, 0), *axis) for n, axis in zip(operation.param("reps"), axes, strict=True)]


def _recast(axes: Axes, operation: Operation, part: int) -> _Moved:
    """Elements of fewer bytes lie where the one lies that they are of; of more, where the first."""
    before, after = operation.operands[0].elements, operation.result.elements
    if before > after:
        return 0, axes[:-1]
    return 0, [*axes, ((after // before, 0),)]


MOVES: Mapping[str, Callable[[Axes, Operation, int], _Moved]] = {
    "bitcast_convert_type": _recast,
    "broadcast_in_dim": _repeated,
    "rev": _reversed,
    "slice": _sliced,
    "split": _split,
    "tile": _tiled,
    "transpose": _transposed,
    "unstack": _unstacked,
}
"""By primitive; the others of `VIEWS` keep the order, if they have one operand with elements."""
