"""The cost of reductions: each tile folds its elements; partial results are sent and folded again.

poplibs: popops/reduction plans tensors as they lie; with a linear mapping, a reduction over inner
dimensions folds nearly everything where it is, one over outer dimensions next to nothing. How many
stages follow is chosen by their cost, as the original bounds the partials that one tile receives.
"""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Mapping

from lowering.machine.cost import Cost, Operation, Phase, Shape
from lowering.machine.primitives.rule_helpers import (
    FREE,
    LoopRate,
    Rule,
    camel_case,
    ceil_div,
    default_mapping,
    elements_per_worker,
    fastest_cost,
    is_float,
    one_vertex_per_tile,
    supervisor_cycles,
    vector_width,
)
from lowering.machine.target import Target
from lowering.machine.transfers.exchange_code import partial_pieces

STRIDED = (16, 11)
"""(start, per output), worker cycles: 16 + outputs x (3 + post + (3 + c x (partials - 1))), post 5
for float sums (poplibs: popops/reduction/CycleEstimationFunctions.cpp)."""

SIDE_BY_SIDE = (17, 12)
"""The same where the folded elements lie side by side: 17 + outputs x (12 + c x vectors)."""

MOST_STAGES = 3


@dc.dataclass(frozen=True, slots=True)
class Fold:
    """The operation with which a reduction combines two values.

    Attributes:
      rate: the inner loop.
      carried: bytes of a partial result; 0: those of the sum's type.
      widens: whether partial sums of halves are kept in float32.
      known: whether the rate is the original's.
    """

    rate: LoopRate
    carried: int = 0
    widens: bool = False
    known: bool = True


_ONE_CYCLE = Fold(LoopRate(1))  # poplibs: every operation in assembly, a 64-bit vector at a time
_LOGICAL = Fold(LoopRate(25, 1))  # poplibs: compiled code, 24 + 1 cycles per element
_COMPLEX_PRODUCT = Fold(LoopRate(9, 1))  # six operations on floats, at 3 cycles for two
_WITH_INDEX = Fold(LoopRate(3, 1), carried=8)  # poplibs: popnn ReduceMaxClassGather

FOLDS: Mapping[str, Fold] = {
    "argmax": _WITH_INDEX,
    "argmin": _WITH_INDEX,
    "reduce": Fold(LoopRate(10, 1), known=False),
    "reduce_and": _LOGICAL,
    "reduce_max": _ONE_CYCLE,
    "reduce_min": _ONE_CYCLE,
    "reduce_or": _LOGICAL,
    "reduce_prod": _ONE_CYCLE,
    "reduce_sum": Fold(LoopRate(1), widens=True),
    "reduce_xor": _LOGICAL,  # that popops lacks, as compiled code like the other two
}


@dc.dataclass(frozen=True, slots=True)
class Geometry:
    """The elements and results of a reduction on a tile, where its operand is mapped linearly.

    Attributes:
      held: elements on the busiest tile.
      outputs: how many results that tile has a part of.
      partials: how many tiles have a part of one result.
      contiguous: whether the folded elements lie side by side.
    """

    held: int
    outputs: int
    partials: int
    contiguous: bool


def find_reduction_geometry(shape: Shape, axes: tuple[int, ...], target: Target) -> Geometry:
    """Returns the elements and results per tile of a reduction over some axes.

    A row that the border between two tiles cuts is counted as whole on one of them.
    """
    mapping = default_mapping(shape, target)
    folded = [axis for axis in sorted(axes) if shape.dims[axis] > 1]
    if not folded:
        return Geometry(mapping.most_elements, mapping.most_elements, 1, False)
    period = math.prod(shape.dims[folded[0] :])
    reduction = math.prod(shape.dims[axis] for axis in folded)
    last_kept_axis = max(
        (axis for axis in range(len(shape.dims)) if axis not in folded), default=-1
    )
    side_by_side = math.prod(shape.dims[last_kept_axis + 1 :])
    held_elements, results = mapping.most_elements, shape.elements // reduction
    if held_elements >= period:
        return Geometry(held_elements, ceil_div(held_elements, reduction), 1, side_by_side > 1)
    outputs = min(period // reduction, ceil_div(held_elements, side_by_side))
    partials = min(ceil_div(mapping.used * outputs, results), reduction)
    return Geometry(held_elements, outputs, max(partials, 1), side_by_side > 1)


@dc.dataclass(frozen=True, slots=True)
class Folding:
    """The folds of one operation.

    Attributes:
      rate: the inner loop.
      dtype: the type of the elements that are folded first.
      partial: the type of partial results.
      partial_bytes: bytes of each partial result.
      results: how many results there are.
      target: the chip.
    """

    rate: LoopRate
    dtype: str
    partial: str
    partial_bytes: int
    results: int
    target: Target

    def phases_of_fold_in_pieces(self, geometry: Geometry, pieces: int) -> tuple[Phase, ...]:
        """Returns the phases if every output of a tile is folded in pieces, by several workers."""
        if geometry.held <= geometry.outputs:
            return self.phases_of_combining_partials(geometry.partials)
        outputs = geometry.outputs * pieces
        phases = (self._phase_of_fold_on_tile(geometry, geometry.held, outputs),)
        if geometry.partials > 1:
            return phases + self.phases_of_combining_partials(geometry.partials * pieces)
        return phases + (
            (self._phase_of_fold_on_tile(geometry, outputs, geometry.outputs),)
            if pieces > 1
            else ()
        )

    def phases_of_combining_partials(self, partials: int) -> tuple[Phase, ...]:
        """Returns the cheapest phases that combine partial results, in one to three stages."""
        if partials <= 1:
            return ()
        plans: list[Cost] = []
        for count in range(1, MOST_STAGES + 1):
            fan_in = math.ceil(partials ** (1 / count) - 1e-9)
            remaining, phases = partials, list[Phase]()
            while remaining > 1:
                step = min(fan_in, remaining)
                remaining = ceil_div(remaining, step)
                phases.append(self._phase_of_combining_stage(self.results * remaining, step))
            plans.append(Cost(phases=tuple(phases)))
        return fastest_cost(plans, self.target).phases

    def _phase_of_fold_on_tile(self, geometry: Geometry, elements: int, outputs: int) -> Phase:
        return Phase(
            "Reduce", self._cycles_of_fold(elements, outputs, geometry.contiguous, self.dtype)
        )

    def _phase_of_combining_stage(self, results: int, fan_in: int) -> Phase:
        """Returns a phase in which tiles receive `fan_in` partials of each result and fold them."""
        lanes = vector_width(self.partial)
        outputs = ceil_div(results, self.target.tiles_per_ipu)
        outputs = min(results, ceil_div(outputs, lanes) * lanes)
        cycles = self._cycles_of_fold(outputs * fan_in, outputs, False, self.partial)
        received = float(outputs * fan_in * self.partial_bytes)
        tiles, sources = ceil_div(results, outputs), min(fan_in, self.target.tiles_per_ipu)
        return Phase("Reduce", cycles, received, receivers=tiles, pieces=partial_pieces(sources))

    def _cycles_of_fold(self, elements: int, outputs: int, contiguous: bool, dtype: str) -> float:
        """Returns the cycles to fold elements into outputs, each by one worker."""
        units = outputs if contiguous else ceil_div(outputs, vector_width(dtype))
        units_per_worker = elements_per_worker(units, self.target)
        passes = ceil_div(ceil_div(elements, self.rate.elements or vector_width(dtype)), units)
        start, cycles_per_output = SIDE_BY_SIDE if contiguous else STRIDED
        folds = passes if contiguous else max(0, passes - 1)  # strided ones begin with the first
        return supervisor_cycles(
            start + units_per_worker * (cycles_per_output + self.rate.cycles * folds), self.target
        )


def reduction_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of folds where the data lies, then in stages over the exchange."""
    shape, dtype, fold = op.operands[0], op.operands[0].dtype, FOLDS[op.name]
    if not shape.elements:
        return FREE
    if op.name == "reduce_prod" and dtype.startswith("complex"):
        fold = _COMPLEX_PRODUCT
    axes = op.param("axes", op.param("dimensions", tuple(range(len(shape.dims)))))
    tile_geometry = find_reduction_geometry(shape, tuple(axes), target)
    # partials_type speaks of products only
    partial = "float32" if fold.widens and dtype in ("float16", "bfloat16") else dtype
    size = fold.carried or Shape((), partial).element_bytes
    results = op.first_result.elements if op.results else 0
    folding = Folding(fold.rate, dtype, partial, size, results, target)
    options = [
        folding.phases_of_fold_in_pieces(tile_geometry, pieces) for pieces in (1, target.workers)
    ]
    phases = fastest_cost([Cost(phases=option) for option in options], target).phases
    if not phases:
        return FREE
    return Cost(
        phases=phases,
        temporary_bytes=max(
            tile_geometry.outputs * size, *(phase.exchange_bytes for phase in phases)
        ),
        vertices=one_vertex_per_tile(
            f"popops::{camel_case(op.name)}", dtype, default_mapping(shape, target).used
        ),
        flops=_count_fold_flops(op.name, shape),
        source="formula" if fold.known else "default",
    )


def _count_fold_flops(name: str, shape: Shape) -> float:
    """Counts one floating-point operation per element; of complex ones those on their parts."""
    if not is_float(shape.dtype):
        return 0.0
    is_complex = shape.dtype.startswith("complex")
    parts = (6 if name == "reduce_prod" else 2) if is_complex else 1
    return float(parts * shape.elements)


RULES: dict[str, Rule] = dict.fromkeys(FOLDS, reduction_cost)
