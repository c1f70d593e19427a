"""Reductions: each tile folds what it holds, the partial results are sent and folded again.

poplibs: popops/reduction plans tensors as they lie; with a linear mapping, a reduction over inner
dimensions folds nearly everything where it is, one over outer dimensions next to nothing. How many
stages follow is chosen by their cost, as the original bounds the partials that one tile receives.
"""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Mapping

from lowering.machine.cost import Cost, Operation, Phase, Shape
from lowering.machine.primitives.vertices import (
    FREE,
    Rate,
    Rule,
    camel,
    ceil_div,
    is_float,
    on_worker,
    spread,
    supervisor,
    vertex,
    width,
)
from lowering.machine.target import Target

STRIDED = (16, 11)
"""(start, per output), worker cycles: 16 + outputs x (3 + post + (3 + c x (partials - 1))), post 5
for float sums (poplibs: popops/reduction/CycleEstimationFunctions.cpp)."""

SIDE_BY_SIDE = (17, 12)
"""The same where what is folded lies side by side: 17 + outputs x (12 + c x vectors)."""

MOST_STAGES = 3


@dc.dataclass(frozen=True, slots=True)
class Fold:
    """How a reduction combines two values.

    Attributes:
      rate: the inner loop.
      carried: bytes of a partial result; 0: those of the sum's type.
      widens: whether partial sums of halves are kept in float32.
      known: whether the rate is the original's.
    """

    rate: Rate
    carried: int = 0
    widens: bool = False
    known: bool = True


_ONE_CYCLE = Fold(Rate(1))  # poplibs: every operation in assembly, a 64-bit vector at a time
_LOGICAL = Fold(Rate(25, 1))  # poplibs: compiled code, 24 + 1 cycles per element
_COMPLEX_PRODUCT = Fold(Rate(9, 1))  # six operations on floats, at 3 cycles for two
_WITH_INDEX = Fold(Rate(3, 1), carried=8)  # poplibs: popnn ReduceMaxClassGather

FOLDS: Mapping[str, Fold] = {
    "argmax": _WITH_INDEX,
    "argmin": _WITH_INDEX,
    "reduce": Fold(Rate(10, 1), known=False),
    "reduce_and": _LOGICAL,
    "reduce_max": _ONE_CYCLE,
    "reduce_min": _ONE_CYCLE,
    "reduce_or": _LOGICAL,
    "reduce_prod": _ONE_CYCLE,
    "reduce_sum": Fold(Rate(1), widens=True),
    "reduce_xor": _LOGICAL,  # that popops lacks, as compiled code like the other two
}


@dc.dataclass(frozen=True, slots=True)
class Geometry:
    """What a linearly mapped operand means for a reduction.

    Attributes:
      held: elements on the busiest tile.
      outputs: how many results that tile has a part of.
      partials: how many tiles have a part of one result.
      contiguous: whether what is folded lies side by side.
    """

    held: int
    outputs: int
    partials: int
    contiguous: bool


def geometry(shape: Shape, axes: tuple[int, ...], target: Target) -> Geometry:
    """How the elements of a reduction over some axes are spread.

    A row that the border between two tiles cuts is counted as whole on one of them.
    """
    lying = spread(shape, target)
    folded = [axis for axis in sorted(axes) if shape.dims[axis] > 1]
    if not folded:
        return Geometry(lying.most_elements, lying.most_elements, 1, False)
    period = math.prod(shape.dims[folded[0] :])
    reduction = math.prod(shape.dims[axis] for axis in folded)
    kept = max((axis for axis in range(len(shape.dims)) if axis not in folded), default=-1)
    side_by_side = math.prod(shape.dims[kept + 1 :])
    held, results = lying.most_elements, shape.elements // reduction
    if held >= period:
        return Geometry(held, ceil_div(held, reduction), 1, side_by_side > 1)
    outputs = min(period // reduction, ceil_div(held, side_by_side))
    partials = min(ceil_div(lying.used * outputs, results), reduction)
    return Geometry(held, outputs, max(partials, 1), side_by_side > 1)


def fold_cycles(
    elements: int, outputs: int, contiguous: bool, rate: Rate, dtype: str, target: Target
) -> float:
    """Tile cycles to fold elements into outputs, each (or each vector of them) by one worker."""
    units = outputs if contiguous else ceil_div(outputs, width(dtype))
    mine = on_worker(units, target)
    passes = ceil_div(ceil_div(elements, rate.elements or width(dtype)), units)
    start, each = SIDE_BY_SIDE if contiguous else STRIDED
    folds = passes if contiguous else max(0, passes - 1)  # strided ones begin with the first
    return supervisor(start + mine * (each + rate.cycles * folds), target)


def _stage(results: int, fan: int, fold: Fold, dtype: str, size: int, target: Target) -> Phase:
    """Tiles receive `fan` partials of each of their results and fold them."""
    outputs = ceil_div(results, target.tiles_per_ipu)
    outputs = min(results, ceil_div(outputs, width(dtype)) * width(dtype))
    cycles = fold_cycles(outputs * fan, outputs, False, fold.rate, dtype, target)
    return Phase("Reduce", cycles, float(outputs * fan * size))


def combine(
    results: int, partials: int, fold: Fold, dtype: str, size: int, target: Target
) -> tuple[Phase, ...]:
    """The cheapest way to bring partial results together, in one to three stages."""
    if partials <= 1:
        return ()
    plans: list[tuple[Phase, ...]] = []
    for count in range(1, MOST_STAGES + 1):
        fan = math.ceil(partials ** (1 / count) - 1e-9)
        left, phases = partials, list[Phase]()
        while left > 1:
            step = min(fan, left)
            left = ceil_div(left, step)
            phases.append(_stage(results * left, step, fold, dtype, size, target))
        plans.append(tuple(phases))
    return min(plans, key=lambda plan: _cycles(plan, target))


def _cycles(phases: tuple[Phase, ...], target: Target) -> float:
    cost = Cost(phases=phases)
    return cost.cycles(target.exchange_bytes, target.exchange_cycles, target.sync_cycles)


def reduction(op: Operation, target: Target) -> Cost:
    """Folds where the data lies, then in stages over the exchange."""
    shape, fold = op.operands[0], _fold(op)
    if not shape.elements:
        return FREE
    axes = op.param("axes", op.param("dimensions", tuple(range(len(shape.dims)))))
    lies = geometry(shape, tuple(axes), target)
    carried = _partial_type(op, fold)
    size = fold.carried or Shape((), carried).element_bytes
    plans = [_plan(lies, op, size, carried, pieces, target) for pieces in (1, target.workers)]
    phases = min(plans, key=lambda plan: _cycles(plan, target))
    if not phases:
        return FREE
    return Cost(
        phases=phases,
        temporary_bytes=max(lies.outputs * size, *(phase.exchange_bytes for phase in phases)),
        vertices=vertex(f"popops::{camel(op.name)}", shape.dtype, spread(shape, target).used),
        flops=float(shape.elements) if is_float(shape.dtype) else 0.0,
        source="formula" if fold.known else "default",
    )


def _plan(
    lies: Geometry, op: Operation, size: int, carried: str, pieces: int, target: Target
) -> tuple[Phase, ...]:
    """The supersteps if every output of a tile is folded in pieces, by several workers."""
    fold, dtype = _fold(op), op.operands[0].dtype
    results = op.results[0].elements if op.results else 0

    def here(elements: int, outputs: int) -> Phase:
        given = (lies.contiguous, fold.rate, dtype, target)
        return Phase("Reduce", fold_cycles(elements, outputs, *given))

    if lies.held <= lies.outputs:
        return combine(results, lies.partials, fold, carried, size, target)
    phases = (here(lies.held, lies.outputs * pieces),)
    if lies.partials > 1:
        return phases + combine(results, lies.partials * pieces, fold, carried, size, target)
    return phases + ((here(lies.outputs * pieces, lies.outputs),) if pieces > 1 else ())


def _fold(op: Operation) -> Fold:
    if op.name == "reduce_prod" and op.operands[0].dtype.startswith("complex"):
        return _COMPLEX_PRODUCT
    return FOLDS[op.name]


def _partial_type(op: Operation, fold: Fold) -> str:
    dtype = op.operands[0].dtype
    if fold.widens and dtype in ("float16", "bfloat16"):
        return "float32"  # partials_type speaks of products only
    return dtype


RULES: dict[str, Rule] = dict.fromkeys(FOLDS, reduction)
