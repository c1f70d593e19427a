"""What candidates cost: cycles by term, and temporary memory.

Source: poplibs: ConvModel.cpp addEstimates (docs/hardware.md, Planner), but for two things. A
reduction sends only what changes tiles. And every compute set that waits for an exchange takes what
`constants` has for it, beside the exchange's own fixed cycles.
"""

from __future__ import annotations

import dataclasses as dc

import numpy as np

from lowering.machine.planner.constants import SUPERSTEP_CYCLES
from lowering.machine.planner.padding import Zeros, zeros
from lowering.machine.planner.product import Product
from lowering.machine.planner.reduction import Reduced, reductions
from lowering.machine.planner.tiles import Array, Cuts, Share, ceil_div, share
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
    exchange: Array
    bytes: Array


def estimate(variant: Variant, vertex: Vertex, cuts: Cuts, target: Target) -> Estimate:
    """What every candidate costs.

    Args:
      variant: the product in the shape that is cut.
      vertex: what computes.
      cuts: the candidates.
      target: the chip.
    """
    product = variant.product
    part = share(product, vertex.grains, cuts)
    kept, workers = _kept(product), target.workers
    reduced = reductions(part.partials, cuts.depth, product.partials, kept, workers)
    moved = _rearranged(variant, vertex, cuts, target)
    padding = zeros(product, vertex, part)
    once, each = _cycles(product, vertex, cuts, part, reduced, moved, target)
    each["padding"] = (padding.inputs + padding.weights) * (
        product.element_bytes / target.exchange_bytes
    )
    terms = np.stack([each[term] * cuts.repeats + once.get(term, 0.0) for term in TERMS])
    possible = vertex.allows(part) & (cuts.tiles <= target.tiles_per_ipu)
    memory = _memory(product, vertex, cuts, part, padding, reduced, moved)
    return Estimate(terms=terms, temporary_bytes=memory, possible=possible)


def _kept(product: Product) -> Number:
    """What reductions leave: sums of serial parts of the input are added before they are cast."""
    return product.result if product.partials == "float32" else "float16"


def _rearranged(
    variant: Variant, vertex: Vertex, cuts: Cuts, target: Target
) -> tuple[_Moved, _Moved, _Moved]:
    """Rearrangements of inputs, weights and outputs."""
    product = variant.product
    wanted = variant.rearranged(vertex.grains)
    vector = 2 if product.dtype == "float32" else 4
    both = product.in_channels * product.out_channels
    counts = (
        (product.inputs / cuts.serial_in, both),
        (product.weights / cuts.repeats, both),
        (product.outputs / cuts.serial_out, product.out_channels),
    )
    found: list[_Moved] = []
    for moves, (elements, channels) in zip(wanted, counts, strict=True):
        size = product.element_bytes
        held = np.ceil(elements * size / cuts.tiles) * moves
        # poplibs: getScaleFactorForTransform and reorderBytesPerCycle.
        factor = 5 / 4 if channels % vector == 0 else 5 / 3
        exchange = held / target.exchange_bytes
        found.append(_Moved(copy=held * factor / size, exchange=exchange, bytes=held))
    return found[0], found[1], found[2]


def _cycles(
    product: Product,
    vertex: Vertex,
    cuts: Cuts,
    part: Share,
    reduced: Reduced,
    moved: tuple[_Moved, _Moved, _Moved],
    target: Target,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Cycles by term: of what is done once, and of each serial part."""
    ins, weights, outs = moved
    inside = 1 - cuts.early
    received = inputs_exchange_bytes(product, cuts, part, target) / target.exchange_bytes
    kept = part.weights - part.weights // _sharing(cuts)
    fixed = float(target.exchange_cycles + SUPERSTEP_CYCLES)
    arranges = (ins.bytes * inside + weights.bytes > 0) * 1.0
    restores = (outs.bytes > 0) * 1.0
    workers = target.workers
    once = {
        "arrange": ins.copy * cuts.early,
        "arrange_exchange": ins.exchange * cuts.early,
        "inputs_exchange": received * cuts.early,
        "cast": _cast_after_loop(product, cuts, reduced, workers),
    }
    each = {
        "arrange": ins.copy * inside + weights.copy,
        "arrange_exchange": ins.exchange * inside + weights.exchange,
        "restore": outs.copy,
        "restore_exchange": outs.exchange,
        "slice": _slices(product, cuts, workers),
        "inputs_exchange": received * inside,
        "weights_exchange": kept * product.element_bytes / target.exchange_bytes,
        "compute": vertex.cycles(product, part, target),
        "reduce_exchange": reduced.exchange_bytes / target.exchange_bytes,
        "reduce": reduced.cycles,
        "update": _update(product, cuts, reduced, workers),
        "add_in_place": _add_in_place(product, cuts, reduced, workers),
        "cast": _cast(product, cuts, reduced, workers),
        "supersteps": fixed * (1 + reduced.stages + arranges + restores),
    }
    return once, each


def inputs_exchange_bytes(product: Product, cuts: Cuts, part: Share, target: Target) -> Array:
    """Bytes of inputs that a tile receives, halved where a pair of tiles receives the same.

    A tile holds its part of the inputs that it reads, and of those that it shares with neighbours
    in the field only its own. Tiles that work on different output channels of the same inputs lie
    side by side; if their number is even, every pair shares its bus (poplibs:
    ExchangeEstimator.hpp).
    """
    own = part.inputs
    for whole, cut, read in zip(product.input_field, cuts.field, part.read, strict=True):
        own = own // read * np.minimum(read, ceil_div(whole, cut))
    received = (part.inputs - own // cuts.out_channels) * product.element_bytes
    shared = target.shares_exchange_bus & (cuts.out_channels % 2 == 0)
    return received / np.where(shared, 2, 1)


def _sharing(cuts: Cuts) -> Array:
    """Tiles that use the same weights; each holds a part of them."""
    total = cuts.batch
    for cut in cuts.field:
        total = total * cut
    return total


def _slices(product: Product, cuts: Cuts, workers: int) -> Array:
    """Dynamic slices of a serial part's operands (docs/hardware.md, Other vertices)."""
    size = product.element_bytes
    weights = ceil_div(product.weights, cuts.tiles * cuts.repeats)
    inputs = ceil_div(product.inputs, cuts.tiles * cuts.serial_in)
    return np.where(cuts.repeats > 1, _slice_cycles(weights * size, workers), 0) + np.where(
        cuts.serial_in > 1, _slice_cycles(inputs * size, workers), 0
    )


def _slice_cycles(count: Array, workers: int) -> Array:
    return 25 + workers * (39 + 24 + 2 * np.ceil(count / 8 / workers))


def _update(product: Product, cuts: Cuts, reduced: Reduced, workers: int) -> Array:
    size = 4 if _kept(product) == "float32" else 2
    return np.where(cuts.serial_out > 1, _slice_cycles(reduced.outputs * size, workers), 0)


def _add_in_place(product: Product, cuts: Cuts, reduced: Reduced, workers: int) -> Array:
    """Adds a part's sums to those before (docs/hardware.md, Elementwise vertices: binary)."""
    vector, start = (2, 29) if product.partials == "float32" else (4, 26)
    steps = ceil_div(ceil_div(reduced.outputs, workers), vector)
    return np.where(cuts.serial_in > 1, workers * (start + steps * 2) + 11, 0)


def _cast_cycles(count: Array, workers: int) -> Array:
    """Cast to halves: four in two cycles (docs/hardware.md, Elementwise vertices)."""
    return 12 + workers * (37 + ceil_div(ceil_div(count, workers), 4) * 2)


def _cast(product: Product, cuts: Cuts, reduced: Reduced, workers: int) -> Array:
    """Cast of the result where no reduction does it on the way."""
    needed = (product.partials != product.result) & (cuts.depth == 1) & (cuts.serial_in == 1)
    return np.where(needed, _cast_cycles(reduced.outputs, workers), 0)


def _cast_after_loop(product: Product, cuts: Cuts, reduced: Reduced, workers: int) -> Array:
    needed = (product.partials != product.result) & (cuts.serial_in > 1)
    return np.where(needed, _cast_cycles(reduced.outputs, workers), 0)


def _memory(
    product: Product,
    vertex: Vertex,
    cuts: Cuts,
    part: Share,
    padding: Zeros,
    reduced: Reduced,
    moved: tuple[_Moved, _Moved, _Moved],
) -> Array:
    """Temporary bytes on the largest tile; operands where they lie are not counted."""
    size = product.element_bytes
    inputs, weights = part.inputs * size, part.weights * size
    partials = part.partials * product.partial_bytes
    if vertex.kind == "slic":
        partials = partials + ceil_div(partials, part.group_grains) + 200
    ins, others = moved[0].bytes, np.maximum(moved[1].bytes, moved[2].bytes)
    inside = 1 - cuts.early
    computing = inputs * inside + weights + partials + (padding.inputs + padding.weights) * size
    largest = np.maximum(2 * np.maximum(ins * inside, others), computing)
    largest = np.maximum(largest, reduced.temporary_bytes)
    sums = reduced.outputs * product.partial_bytes * (cuts.serial_in > 1)
    return (ins + inputs) * cuts.early + largest + sums
