"""What candidates cost: cycles by term, and temporary memory.

Source: poplibs: ConvModel.cpp addEstimates (docs/hardware.md, Planner), but for two things. A
reduction sends only what changes tiles. And every compute set that waits for an exchange takes what
`constants` has for it, beside the exchange's own fixed cycles.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable

import numpy as np

from lowering.machine.planner.constants import SUPERSTEP_CYCLES, bytes_of
from lowering.machine.planner.reduction import reductions
from lowering.machine.planner.tiles import Array, Cuts, ceil_div, share
from lowering.machine.planner.variants import Variant
from lowering.machine.planner.vertices import Vertex
from lowering.machine.target import Number, Target

TERMS = (
    "arrange",
    "arrange_exchange",
    "slice",
    "inputs_exchange",
    "weights_exchange",
    "padding",
    "compute",
    "reduce_exchange",
    "reduce",
    "update",
    "add_in_place",
    "cast",
    "restore",
    "restore_exchange",
    "supersteps",
)
"""What the cycles of a plan are made of, all serial parts together."""


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What candidates cost.

    Attributes:
      terms: float64 [len(TERMS), candidates]: cycles of each term.
      temporary_bytes: float64 [candidates]: on the largest tile, beside operands and results.
      possible: bool [candidates]: whether the vertex can do it at all.
    """

    terms: Array
    temporary_bytes: Array
    possible: Array

    @property
    def cycles(self) -> Array:
        """float64 [candidates]: of all terms; infinite where it is not possible."""
        return np.where(self.possible, self.terms.sum(axis=0), np.inf)


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    """Rearrangement of one tensor, of a serial part, on each of the tiles that take part."""

    copy: Array
    bytes: Array


def estimate(variant: Variant, vertex: Vertex, cuts: Cuts, target: Target) -> Estimate:
    """What every candidate costs.

    Args:
      variant: the product in the shape that is cut.
      vertex: what computes.
      cuts: the candidates.
      target: the chip.
    """
    candidates = _Candidates(variant, vertex, cuts, target)
    once, each = candidates.once(), candidates.each()
    terms = np.stack([each[term] * cuts.repeats + once.get(term, 0.0) for term in TERMS])
    possible = vertex.allows(candidates.part) & (cuts.tiles <= target.tiles_per_ipu)
    return Estimate(terms=terms, temporary_bytes=candidates.memory(), possible=possible)


class _Candidates:
    """What the terms of candidates are made of.

    Attributes:
      size: of an operand's element, in bytes.
      part: of the largest tile.
      kept: what reductions leave: sums of serial parts of the input are added before they are cast.
      reduced: what reductions cost.
      moved: rearrangements of inputs, weights and outputs.
      received: cycles in which a tile receives its inputs.
      zeros: elements that are filled up.
      inside: whether the loop over serial parts sends the inputs (0 or 1).
    """

    def __init__(self, variant: Variant, vertex: Vertex, cuts: Cuts, target: Target) -> None:
        self.product = product = variant.product
        self.size, partials = product.element_bytes, product.partials
        self.vertex, self.cuts, self.target, self.workers = vertex, cuts, target, target.workers
        self.part = share(product, vertex.grains, cuts)
        self.kept: Number = product.result if partials == "float32" else "float16"
        self.reduced = reductions(self.part.partials, cuts.depth, partials, self.kept, self.workers)
        self.moved = self._rearranged(variant.rearranged(vertex.grains))
        self.received = self._inputs_exchange_bytes() / target.exchange_bytes
        self.zeros = vertex.zeros(product, self.part)
        self.inside = 1 - cuts.early

    def once(self) -> dict[str, Array]:
        """Cycles by term of what is done before or after the loop over serial parts."""
        ins, early = self.moved[0], self.cuts.early
        return {
            "arrange": ins.copy * early,
            "arrange_exchange": ins.bytes / self.target.exchange_bytes * early,
            "inputs_exchange": self.received * early,
            "cast": self._cast(self.cuts.serial_in > 1),
        }

    def each(self) -> dict[str, Array]:
        """Cycles by term of each serial part."""
        cuts, part, reduced, inside = self.cuts, self.part, self.reduced, self.inside
        size, per_cycle = self.size, self.target.exchange_bytes
        ins, weights, outs = self.moved
        received = part.weights - part.weights // cuts.sharing
        fixed = float(self.target.exchange_cycles + SUPERSTEP_CYCLES)
        arranges = (ins.bytes * inside + weights.bytes > 0) * 1.0
        restores = (outs.bytes > 0) * 1.0
        return {
            "arrange": ins.copy * inside + weights.copy,
            "arrange_exchange": ins.bytes / per_cycle * inside + weights.bytes / per_cycle,
            "restore": outs.copy,
            "restore_exchange": outs.bytes / per_cycle,
            "slice": self._slices(),
            "inputs_exchange": self.received * inside,
            "weights_exchange": received * size / per_cycle,
            "padding": self.zeros * (size / per_cycle),
            "compute": self.vertex.cycles(self.product, part, self.target),
            "reduce_exchange": reduced.exchange_bytes / per_cycle,
            "reduce": reduced.cycles,
            "update": self._sliced(reduced.outputs * bytes_of(self.kept), cuts.serial_out > 1),
            "add_in_place": self._add_in_place(),
            # Where no reduction does it on the way.
            "cast": self._cast((cuts.depth == 1) & (cuts.serial_in == 1)),
            "supersteps": fixed * (1 + reduced.stages + arranges + restores),
        }

    def memory(self) -> Array:
        """Temporary bytes on the largest tile; operands where they lie are not counted."""
        cuts, part, inside, size = self.cuts, self.part, self.inside, self.size
        sum_size = bytes_of(self.product.partials)
        inputs, weights, partials = (
            part.inputs * size,
            part.weights * size,
            part.partials * sum_size,
        )
        if self.vertex.kind == "slic":
            partials = partials + ceil_div(partials, part.group_grains) + 200
        ins, others = self.moved[0].bytes, np.maximum(self.moved[1].bytes, self.moved[2].bytes)
        computing = inputs * inside + weights + partials + self.zeros * size
        largest = np.maximum(2 * np.maximum(ins * inside, others), computing)
        largest = np.maximum(largest, self.reduced.temporary_bytes)
        sums = self.reduced.outputs * sum_size * (cuts.serial_in > 1)
        return (ins + inputs) * cuts.early + largest + sums

    def _rearranged(self, moves: Iterable[bool]) -> list[_Moved]:
        product, cuts, size = self.product, self.cuts, self.size
        vector = 2 if product.dtype == "float32" else 4
        both = product.in_channels * product.out_channels
        counts = (
            (product.inputs / cuts.serial_in, both),
            (product.weights / cuts.repeats, both),
            (product.outputs / cuts.serial_out, product.out_channels),
        )
        rearrangements: list[_Moved] = []
        for needed, (elements, channels) in zip(moves, counts, strict=True):
            held = np.ceil(elements * size / cuts.tiles) * needed
            # poplibs: getScaleFactorForTransform and reorderBytesPerCycle.
            factor = 5 / 4 if channels % vector == 0 else 5 / 3
            rearrangements.append(_Moved(copy=held * factor / size, bytes=held))
        return rearrangements

    def _inputs_exchange_bytes(self) -> Array:
        """Bytes of inputs that a tile receives, halved where a pair of tiles receives the same.

        A tile holds its part of the inputs that it reads, and of those that it shares with
        neighbours in the field only its own. Tiles that work on different output channels of the
        same inputs lie side by side; if their number is even, every pair shares its bus (poplibs:
        ExchangeEstimator.hpp).
        """
        product, cuts, part = self.product, self.cuts, self.part
        held = part.inputs
        for whole, cut, read in zip(product.input_field, cuts.field, part.read, strict=True):
            held = held // read * np.minimum(read, ceil_div(whole, cut))
        received = (part.inputs - held // cuts.out_channels) * self.size
        shared = self.target.shares_exchange_bus & (cuts.out_channels % 2 == 0)
        return received / np.where(shared, 2, 1)

    def _slices(self) -> Array:
        """Dynamic slices of a serial part's operands (docs/hardware.md, Other vertices)."""
        product, cuts = self.product, self.cuts
        weights = ceil_div(product.weights, cuts.tiles * cuts.repeats) * self.size
        inputs = ceil_div(product.inputs, cuts.tiles * cuts.serial_in) * self.size
        return self._sliced(weights, cuts.repeats > 1) + self._sliced(inputs, cuts.serial_in > 1)

    def _sliced(self, count: Array, needed: Array) -> Array:
        """A dynamic slice or update of so many bytes."""
        cycles = 25 + self.workers * (39 + 24 + 2 * np.ceil(count / 8 / self.workers))
        return np.where(needed, cycles, 0)

    def _add_in_place(self) -> Array:
        """Adds a part's sums to those before (docs/hardware.md, Elementwise vertices: binary)."""
        vector, start = (2, 29) if self.product.partials == "float32" else (4, 26)
        steps = ceil_div(ceil_div(self.reduced.outputs, self.workers), vector)
        cycles = self.workers * (start + steps * 2) + 11
        return np.where(self.cuts.serial_in > 1, cycles, 0)

    def _cast(self, needed: Array) -> Array:
        """Cast of the result to halves: four in two cycles.

        Source: docs/hardware.md, Elementwise vertices.
        """
        steps = ceil_div(ceil_div(self.reduced.outputs, self.workers), 4)
        casts = needed & (self.product.partials != self.product.result)
        return np.where(casts, 12 + self.workers * (37 + steps * 2), 0)
