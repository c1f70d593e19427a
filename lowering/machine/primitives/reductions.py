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
    fastest,
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


@dc.dataclass(frozen=True, slots=True)
class Folding:
    """The folds of one operation.

    Attributes:
      rate: the inner loop.
      dtype: of what is folded first.
      partial: what partial results are kept in.
      partial_bytes: of each.
      results: how many there are.
      target: the chip.
    """

    rate: Rate
    dtype: str
    partial: str
    partial_bytes: int
    results: int
    target: Target

    def supersteps(self, lies: Geometry, pieces: int) -> tuple[Phase, ...]:
        """What runs if every output of a tile is folded in pieces, by several workers."""
        if lies.held <= lies.outputs:
            return self.combined(lies.partials)
        outputs = lies.outputs * pieces
        phases = (self._here(lies, lies.held, outputs),)
        if lies.partials > 1:
            return phases + self.combined(lies.partials * pieces)
        return phases + ((self._here(lies, outputs, lies.outputs),) if pieces > 1 else ())

    def combined(self, partials: int) -> tuple[Phase, ...]:
        """The cheapest way to bring partial results together, in one to three stages."""
        if partials <= 1:
            return ()
        plans: list[Cost] = []
        for count in range(1, MOST_STAGES + 1):
            fan = math.ceil(partials ** (1 / count) - 1e-9)
            left, phases = partials, list[Phase]()
            while left > 1:
                step = min(fan, left)
                left = ceil_div(left, step)
                phases.append(self._stage(self.results * left, step))
            plans.append(Cost(phases=tuple(phases)))
        return fastest(plans, self.target).phases

    def _here(self, lies: Geometry, elements: int, outputs: int) -> Phase:
        return Phase("Reduce", self._cycles(elements, outputs, lies.contiguous, self.dtype))

    def _stage(self, results: int, fan: int) -> Phase:
        """Tiles receive `fan` partials of each of their results and fold them."""
        lanes = width(self.partial)
        outputs = ceil_div(results, self.target.tiles_per_ipu)
        outputs = min(results, ceil_div(outputs, lanes) * lanes)
        cycles = self._cycles(outputs * fan, outputs, False, self.partial)
        return Phase("Reduce", cycles, float(outputs * fan * self.partial_bytes))

    def _cycles(self, elements: int, outputs: int, contiguous: bool, dtype: str) -> float:
        """To fold elements into outputs, each (or each vector of them) by one worker."""
        units = outputs if contiguous else ceil_div(outputs, width(dtype))
        mine = on_worker(units, self.target)
        passes = ceil_div(ceil_div(elements, self.rate.elements or width(dtype)), units)
        start, each = SIDE_BY_SIDE if contiguous else STRIDED
        folds = passes if contiguous else max(0, passes - 1)  # strided ones begin with the first
        return supervisor(start + mine * (each + self.rate.cycles * folds), self.target)


def reduction(op: Operation, target: Target) -> Cost:
    """Folds where the data lies, then in stages over the exchange."""
    shape, dtype, fold = op.operands[0], op.operands[0].dtype, FOLDS[op.name]
    if not shape.elements:
        return FREE
    if op.name == "reduce_prod" and dtype.startswith("complex"):
        fold = _COMPLEX_PRODUCT
    axes = op.param("axes", op.param("dimensions", tuple(range(len(shape.dims)))))
    lies = geometry(shape, tuple(axes), target)
    # partials_type speaks of products only
    partial = "float32" if fold.widens and dtype in ("float16", "bfloat16") else dtype
    size = fold.carried or Shape((), partial).element_bytes
    results = op.result.elements if op.results else 0
    folding = Folding(fold.rate, dtype, partial, size, results, target)
    ways = [folding.supersteps(lies, pieces) for pieces in (1, target.workers)]
    phases = fastest([Cost(phases=way) for way in ways], target).phases
    if not phases:
        return FREE
    return Cost(
        phases=phases,
        temporary_bytes=max(lies.outputs * size, *(phase.exchange_bytes for phase in phases)),
        vertices=vertex(f"popops::{camel(op.name)}", dtype, spread(shape, target).used),
        flops=float(shape.elements) if is_float(dtype) else 0.0,
        source="formula" if fold.known else "default",
    )


RULES: dict[str, Rule] = dict.fromkeys(FOLDS, reduction)
