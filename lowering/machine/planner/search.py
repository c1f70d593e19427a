"""The plan of a product: the fastest partition whose temporary memory is within bounds.

The original bounds a tree of partitions with a constraint solver (poplibs: popsolver). Here a
coarse grid of candidates is priced at once, then the neighbours of the best ones, until nothing
improves. Which candidates are priced does not depend on the memory that a plan may take, so more
memory never gives a slower plan.
"""

from __future__ import annotations

import dataclasses as dc
import functools

import numpy as np

from lowering.errors import InternalError
from lowering.machine.planner.constants import DEFAULT_PROPORTION
from lowering.machine.planner.cut import Axes, around, axes_of, coarse
from lowering.machine.planner.estimate import TERMS, estimate
from lowering.machine.planner.product import Product
from lowering.machine.planner.tiles import Array
from lowering.machine.planner.variants import Variant, variants_of
from lowering.machine.planner.vertices import Vertex, vertices_for
from lowering.machine.target import Target

_BUDGET = 4500
_ROUNDS = 4
_CLOSE = 1.3
_GUIDES = (1e9, 0.6, 0.3, 0.1, 0.03, 0.0)
"""Shares of a tile's memory for which the search looks for the fastest plan; 0: the smallest."""


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """In how many parts each dimension is cut; parts are on different tiles."""

    groups: int
    batch: int
    field: tuple[int, ...]
    kernel: tuple[int, ...]
    in_channels: int
    out_channels: int


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a product is computed.

    Attributes:
      variant: the shape that is cut, and what is rearranged for it.
      vertex: what computes.
      partition: in how many parts, on different tiles.
      serial_in: parts of the input channels, one after the other.
      serial_out: parts of the output channels, one after the other.
      early: whether inputs are sent once, before the loop over serial parts.
      cycles_by_term: tile cycles of each of `TERMS`, all serial parts together, without syncs.
      temporary_bytes: on the largest tile, beside operands and results.
    """

    variant: Variant
    vertex: Vertex
    partition: Partition
    serial_in: int
    serial_out: int
    early: bool
    cycles_by_term: tuple[tuple[str, float], ...]
    temporary_bytes: float

    @property
    def kind(self) -> str:
        """The vertex' kind."""
        return self.vertex.kind

    @property
    def tiles(self) -> int:
        """Tiles that take part."""
        cut = self.partition
        total = cut.groups * cut.batch * cut.in_channels * cut.out_channels
        for parts in (*cut.field, *cut.kernel):
            total *= parts
        return total

    @property
    def depth(self) -> int:
        """Partials of each output element, on different tiles."""
        depth = self.partition.in_channels
        for parts in self.partition.kernel:
            depth *= parts
        return depth

    @property
    def repeats(self) -> int:
        """Serial parts."""
        return self.serial_in * self.serial_out

    @property
    def cycles(self) -> float:
        """Tile cycles of compute and exchange, without syncs."""
        return sum(cycles for _, cycles in self.cycles_by_term)


@dc.dataclass(frozen=True, slots=True)
class _Way:
    """A variant and a vertex: one space of partitions."""

    variant: Variant
    vertex: Vertex
    axes: Axes


@dc.dataclass(slots=True)
class _Found:
    """Candidates that have been priced."""

    way: _Way
    index: Array
    cycles: Array
    memory: Array


@functools.lru_cache(maxsize=65536)
def plan(product: Product, target: Target, memory_proportion: float = DEFAULT_PROPORTION) -> Plan:
    """The plan of a product on one IPU.

    If nothing fits, the bound doubles until it reaches two tiles, and is then dropped; a proportion
    of 0 asks for the least memory (poplibs: ConvPlan.cpp).

    Args:
      product: what is computed; none of its extents may be 0.
      target: the chip.
      memory_proportion: the share of a tile's memory that temporary data may fill.

    Raises:
      InternalError: if one of the extents is 0.
    """
    if not product.macs:
        raise InternalError("A product with an empty extent computes nothing and has no plan.")
    front = _front(product, target)
    if memory_proportion <= 0:
        return front.plan(0, target)
    bound = memory_proportion * target.bytes_per_tile
    while bound < 2 * target.bytes_per_tile and front.memory[0] > bound:
        bound *= 2
    fitting = int(np.searchsorted(front.memory, bound, side="right"))
    return front.plan(fitting - 1, target)  # the last one, the fastest of all, if nothing fits


@dc.dataclass(frozen=True, slots=True)
class _Front:
    """Candidates not beaten in both cycles and memory: smallest first, fastest last."""

    ways: tuple[_Way, ...]
    which: Array
    index: tuple[tuple[int, ...], ...]
    memory: Array

    def plan(self, position: int, target: Target) -> Plan:
        """One of them as a plan."""
        way = self.ways[int(self.which[position])]
        return _plan(way, np.array([self.index[position]]), target)


@functools.lru_cache(maxsize=16384)
def _front(product: Product, target: Target) -> _Front:
    """All that is worth knowing about the partitions of a product."""
    ways = [
        _Way(variant, vertex, axes_of(variant.product, vertex.grains, target.tiles_per_ipu))
        for variant in variants_of(product)
        for vertex in vertices_for(variant.product, target, variant.name != "plain")
    ]
    tiles = target.tiles_per_ipu
    found = [_price(way, coarse(way.axes, tiles, _budget(way)), target) for way in ways]
    seen: set[tuple[int, ...]] = set()
    for _ in range(_ROUNDS):
        seeds = _best(found, target)
        fresh = [(i, at) for i, at in seeds if (id(found[i].way), *at) not in seen]
        if not fresh:
            break
        seen.update((id(found[i].way), *at) for i, at in fresh)
        for i in {i for i, _ in fresh}:
            starts = np.array([at for j, at in fresh if i == j])
            way = found[i].way
            found.append(_price(way, around(way.axes, starts, tiles), target))
    return _pareto(found)


def _budget(way: _Way) -> int:
    """Candidates of the coarse grid; fewer where the best are seldom found."""
    seldom = way.vertex.kind == "hmac" or way.variant.name != "plain"
    return _BUDGET // 3 if seldom and not way.variant.product.scalar else _BUDGET


def _price(way: _Way, index: Array, target: Target) -> _Found:
    costs = estimate(way.variant, way.vertex, way.axes.cuts(index), target)
    return _Found(way, index, costs.cycles, costs.temporary_bytes)


def _best(found: list[_Found], target: Target) -> list[tuple[int, tuple[int, ...]]]:
    """The best candidate under each of the guides' bounds, and those of other ways close to it."""
    seeds: dict[tuple[int, int], None] = {}
    for guide in _GUIDES:
        best: dict[int, tuple[float, int, int]] = {}
        for i, one in enumerate(found):
            if guide:
                score = np.where(one.memory <= guide * target.bytes_per_tile, one.cycles, np.inf)
            else:
                score = np.where(np.isfinite(one.cycles), one.memory, np.inf)
            at = int(np.argmin(score))
            way = id(one.way)
            if score[at] < best.get(way, (np.inf,))[0]:
                best[way] = float(score[at]), i, at
        close = _CLOSE * min((score for score, _, _ in best.values()), default=0.0)
        for score, i, at in best.values():
            if score <= close:
                seeds[i, at] = None
    return [(i, tuple(found[i].index[at].tolist())) for i, at in seeds]


def _pareto(found: list[_Found]) -> _Front:
    cycles = np.concatenate([one.cycles for one in found])
    memory = np.concatenate([one.memory for one in found])
    starts = np.cumsum([0, *(len(one.cycles) for one in found)])
    order = np.lexsort((cycles, memory))
    order = order[np.isfinite(cycles[order])]
    fastest = np.minimum.accumulate(cycles[order])
    kept = order[np.concatenate([[True], fastest[1:] < fastest[:-1]])]
    which = np.searchsorted(starts, kept, side="right") - 1
    rows = zip(which.tolist(), (kept - starts[which]).tolist(), strict=True)
    index = tuple(tuple(found[i].index[at].tolist()) for i, at in rows)
    return _Front(tuple(one.way for one in found), which, index, memory[kept])


def _plan(way: _Way, index: Array, target: Target) -> Plan:
    cuts = way.axes.cuts(index)
    costs = estimate(way.variant, way.vertex, cuts, target)
    partition = Partition(
        groups=int(cuts.groups[0]),
        batch=int(cuts.batch[0]),
        field=tuple(int(cut[0]) for cut in cuts.field),
        kernel=tuple(int(cut[0]) for cut in cuts.kernel),
        in_channels=int(cuts.in_channels[0]),
        out_channels=int(cuts.out_channels[0]),
    )
    terms = zip(TERMS, costs.terms[:, 0].tolist(), strict=True)
    return Plan(
        variant=way.variant,
        vertex=way.vertex,
        partition=partition,
        serial_in=int(cuts.serial_in[0]),
        serial_out=int(cuts.serial_out[0]),
        early=bool(cuts.early[0]),
        cycles_by_term=tuple(terms),
        temporary_bytes=float(costs.temporary_bytes[0]),
    )
