"""The cost of candidate cuts: cycles by term, and temporary memory.

Source: poplibs: ConvModel.cpp addEstimates (docs/hardware.md, Planner), but for two things. A
reduction sends only data that changes tiles. And every compute set that waits for an exchange takes
`SUPERSTEP_CYCLES` beside the exchange's own fixed cycles.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable

import numpy as np

from lowering.machine.cost import SUPERSTEP_CYCLES
from lowering.machine.planner.plan_variants import Variant
from lowering.machine.planner.planner_constants import bytes_per_number
from lowering.machine.planner.reduction import estimate_reductions
from lowering.machine.planner.tiles import Array, Cuts, ceil_div, find_largest_part
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
"""The terms of a plan's cycles, all serial parts together."""


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The estimated costs of candidates.

    Attributes:
      terms: float64 [len(TERMS), candidates]: cycles of each term.
      temporary_bytes: float64 [candidates]: on the largest tile, beside operands and results.
      possible: bool [candidates]: whether the vertex can do it at all.
    """

    terms: Array
    temporary_bytes: Array
    possible: Array

    @property
    def total_term_cycles(self) -> Array:
        """Float64 [candidates]: cycles of all terms; infinite where the vertex cannot do it."""
        return np.where(self.possible, self.terms.sum(axis=0), np.inf)


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class _Rearrangement:
    """The rearrangement of one tensor, of a serial part, on each tile that takes part."""

    copy: Array
    bytes: Array


def estimate_candidates(variant: Variant, vertex: Vertex, cuts: Cuts, target: Target) -> Estimate:
    """Estimates the cost of every candidate.

    Args:
      variant: the matrix product or convolution, in the shape that is divided among tiles.
      vertex: the vertex type that computes a tile's part.
      cuts: the candidates.
      target: the chip.
    """
    candidates = _Candidates(variant, vertex, cuts, target)
    cycles_once, cycles_per_part = (
        candidates.cycles_outside_serial_loop(),
        candidates.cycles_of_serial_part(),
    )
    terms = np.stack(
        [cycles_per_part[term] * cuts.serial_repeats + cycles_once.get(term, 0.0) for term in TERMS]
    )
    possible = vertex.can_compute(candidates.part) & (cuts.tiles_used <= target.tiles_per_ipu)
    return Estimate(
        terms=terms, temporary_bytes=candidates.temporary_bytes_of_candidates(), possible=possible
    )


def estimate_work_space(variant: Variant, vertex: Vertex, cuts: Cuts, target: Target) -> Array:
    """Estimates what every candidate needs on the largest tile, beside operands and result.

    The bound of the search counts sums as work space, as the original does. Where nothing is
    reduced, cast or rearranged they are the result (poplibs: Convolution.cpp, convolutionImpl), and
    a result that is written at the end needs no memory before (docs/hardware.md, Planner).

    Args:
      variant: the product, in the shape that is divided among tiles.
      vertex: the vertex type that computes a tile's part.
      cuts: the candidates.
      target: the chip.
    """
    return _Candidates(variant, vertex, cuts, target).work_space_of_candidates()


class _Candidates:
    """The quantities that the terms of candidates consist of.

    Attributes:
      size: bytes of an operand's element.
      part: the part of the largest tile.
      kept: the type of reduced sums: those of serial parts are added before they are cast.
      reduced: the costs of reductions.
      moved: rearrangements of inputs, weights and outputs.
      received: cycles in which a tile receives its inputs.
      zeros: elements of padding.
      inside: whether the loop over serial parts sends the inputs (0 or 1).
    """

    def __init__(self, variant: Variant, vertex: Vertex, cuts: Cuts, target: Target) -> None:
        self.product = product = variant.product
        self.size, partials = product.element_bytes, product.partials
        self.vertex, self.cuts, self.target, self.workers = vertex, cuts, target, target.workers
        self.part = find_largest_part(product, vertex.grains, cuts)
        self.kept: Number = product.result if partials == "float32" else "float16"
        self.reduced = estimate_reductions(
            self.part.partials, cuts.depth, partials, self.kept, self.workers
        )
        self.moved = self._estimate_rearrangements(variant.find_rearranged_tensors(vertex.grains))
        self.received = self._inputs_exchange_bytes() / target.exchange_bytes
        self.zeros = vertex.count_padding_elements(product, self.part)
        self.inside = 1 - cuts.early

    def cycles_outside_serial_loop(self) -> dict[str, Array]:
        """Returns the cycles by term of what runs before or after the loop over serial parts."""
        ins, early = self.moved[0], self.cuts.early
        return {
            "arrange": ins.copy * early,
            "arrange_exchange": ins.bytes / self.target.exchange_bytes * early,
            "inputs_exchange": self.received * early,
            "cast": self._cycles_of_result_cast(self.cuts.serial_in > 1),
        }

    def cycles_of_serial_part(self) -> dict[str, Array]:
        """Returns the cycles by term of each serial part."""
        cuts, part, reduced, inside = self.cuts, self.part, self.reduced, self.inside
        size, per_cycle = self.size, self.target.exchange_bytes
        ins, weights, outs = self.moved
        received = part.weights - part.weights // cuts.tiles_sharing_weights
        fixed = float(self.target.exchange_cycles + SUPERSTEP_CYCLES)
        arranges = (ins.bytes * inside + weights.bytes > 0) * 1.0
        restores = (outs.bytes > 0) * 1.0
        return {
            "arrange": ins.copy * inside + weights.copy,
            "arrange_exchange": ins.bytes / per_cycle * inside + weights.bytes / per_cycle,
            "restore": outs.copy,
            "restore_exchange": outs.bytes / per_cycle,
            "slice": self._cycles_of_operand_slices(),
            "inputs_exchange": self.received * inside,
            "weights_exchange": received * size / per_cycle,
            "padding": self.zeros * (size / per_cycle),
            "compute": self.vertex.cycles_of_part(self.product, part, self.target),
            "reduce_exchange": reduced.exchange_bytes / per_cycle,
            "reduce": reduced.cycles,
            "update": self._cycles_of_slice(
                reduced.outputs * bytes_per_number(self.kept), cuts.serial_out > 1
            ),
            "add_in_place": self._cycles_of_adding_sums(),
            # Where no reduction does it on the way.
            "cast": self._cycles_of_result_cast((cuts.depth == 1) & (cuts.serial_in == 1)),
            "supersteps": fixed * (1 + reduced.stages + arranges + restores),
        }

    def temporary_bytes_of_candidates(self) -> Array:
        """Returns the temporary bytes on the largest tile, beside operands where they lie."""
        ins, weights, outs = (moved.bytes for moved in self.moved)
        arranging = 2 * np.maximum(np.maximum(ins * self.inside, weights), outs)
        largest = np.maximum(arranging, self._bytes_while_computing())
        largest = np.maximum(largest, self.reduced.temporary_bytes)
        return self._bytes_sent_early() + largest + self._bytes_of_serial_sums()

    def work_space_of_candidates(self) -> Array:
        """Returns the bytes on the largest tile, beside operands and result; see above."""
        cuts, product = self.cuts, self.product
        ins, weights, outs = (moved.bytes for moved in self.moved)
        casts = product.partials != product.result
        before = np.maximum(
            2 * np.maximum(ins * self.inside, weights), self._bytes_while_computing()
        )
        result = np.ceil(product.output_elements / cuts.tiles_used)
        result = result * bytes_per_number(product.result) * (cuts.serial_repeats == 1)
        partials = self.part.partials * bytes_per_number(product.partials)
        read_at_end = np.maximum(outs, partials * (casts & (cuts.depth == 1)))
        read_at_end = np.maximum(read_at_end, self.reduced.temporary_bytes)
        space = np.maximum(before - result, read_at_end)
        return self._bytes_sent_early() + space + self._bytes_of_serial_sums() * casts

    def _bytes_while_computing(self) -> Array:
        """Returns the bytes of a serial part's operands and sums on the largest tile."""
        part, size = self.part, self.size
        partials = part.partials * bytes_per_number(self.product.partials)
        if self.vertex.kind == "slic":
            partials = partials + ceil_div(partials, part.group_grains) + 200
        return (part.inputs * self.inside + part.weights + self.zeros) * size + partials

    def _bytes_sent_early(self) -> Array:
        """Returns the bytes of inputs that are sent before the loop over serial parts."""
        return (self.moved[0].bytes + self.part.inputs * self.size) * self.cuts.early

    def _bytes_of_serial_sums(self) -> Array:
        """Returns the bytes of the sums over serial parts."""
        size = bytes_per_number(self.product.partials)
        return self.reduced.outputs * size * (self.cuts.serial_in > 1)

    def _estimate_rearrangements(self, needs_rearrangement: Iterable[bool]) -> list[_Rearrangement]:
        product, cuts, size = self.product, self.cuts, self.size
        vector = 2 if product.dtype == "float32" else 4
        channel_product = product.in_channels * product.out_channels
        counts = (
            (product.input_elements / cuts.serial_in, channel_product),
            (product.weight_elements / cuts.serial_repeats, channel_product),
            (product.output_elements / cuts.serial_out, product.out_channels),
        )
        rearrangements: list[_Rearrangement] = []
        for needed, (elements, channels) in zip(needs_rearrangement, counts, strict=True):
            bytes_on_tile = np.ceil(elements * size / cuts.tiles_used) * needed
            # poplibs: getScaleFactorForTransform and reorderBytesPerCycle.
            factor = 5 / 4 if channels % vector == 0 else 5 / 3
            rearrangements.append(
                _Rearrangement(copy=bytes_on_tile * factor / size, bytes=bytes_on_tile)
            )
        return rearrangements

    def _inputs_exchange_bytes(self) -> Array:
        """Returns the bytes of inputs that a tile receives; a pair of tiles may share them.

        A tile holds its part of the inputs that it reads, and of those that it shares with
        neighbours in the field only its own. Tiles that work on different output channels of the
        same inputs lie side by side; if their number is even, every pair shares its bus (poplibs:
        ExchangeEstimator.hpp).
        """
        product, cuts, part = self.product, self.cuts, self.part
        elements_on_tile = part.inputs
        for extent, cut, read in zip(product.input_field, cuts.field, part.read, strict=True):
            elements_on_tile = elements_on_tile // read * np.minimum(read, ceil_div(extent, cut))
        received = (part.inputs - elements_on_tile // cuts.out_channels) * self.size
        shared = self.target.shares_exchange_bus & (cuts.out_channels % 2 == 0)
        return received / np.where(shared, 2, 1)

    def _cycles_of_operand_slices(self) -> Array:
        """Returns the cycles of dynamic slices of operands (docs/hardware.md, Other vertices)."""
        product, cuts = self.product, self.cuts
        weights = (
            ceil_div(product.weight_elements, cuts.tiles_used * cuts.serial_repeats) * self.size
        )
        inputs = ceil_div(product.input_elements, cuts.tiles_used * cuts.serial_in) * self.size
        return self._cycles_of_slice(weights, cuts.serial_repeats > 1) + self._cycles_of_slice(
            inputs, cuts.serial_in > 1
        )

    def _cycles_of_slice(self, count: Array, needed: Array) -> Array:
        """Returns the cycles of a dynamic slice or update of so many bytes."""
        cycles = 25 + self.workers * (39 + 24 + 2 * np.ceil(count / 8 / self.workers))
        return np.where(needed, cycles, 0)

    def _cycles_of_adding_sums(self) -> Array:
        """Returns the cycles to add a part's sums (docs/hardware.md, Elementwise vertices)."""
        vector, start = (2, 29) if self.product.partials == "float32" else (4, 26)
        steps = ceil_div(ceil_div(self.reduced.outputs, self.workers), vector)
        cycles = self.workers * (start + steps * 2) + 11
        return np.where(self.cuts.serial_in > 1, cycles, 0)

    def _cycles_of_result_cast(self, needed: Array) -> Array:
        """Returns the cycles to cast the result to halves: four in two cycles.

        Source: docs/hardware.md, Elementwise vertices.
        """
        steps = ceil_div(ceil_div(self.reduced.outputs, self.workers), 4)
        casts = needed & (self.product.partials != self.product.result)
        return np.where(casts, 12 + self.workers * (37 + steps * 2), 0)
