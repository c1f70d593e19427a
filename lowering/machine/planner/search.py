"""The plan of a product: the fastest partition whose temporary memory is within bounds.

The original bounds a tree of partitions with a constraint solver (poplibs: popsolver). Here a
coarse grid of candidates is priced at once, then the neighbours of the best ones, until nothing
improves. Which candidates are priced does not depend on the memory that a plan may take, so more
memory never gives a slower plan.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import math
from typing import TypeAlias

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


@dc.dataclass(frozen=True, slots=True)
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
        return cut.groups * cut.batch * math.prod(cut.field) * cut.out_channels * self.depth

    @property
    def depth(self) -> int:
        """Partials of each output element, on different tiles."""
        return self.partition.in_channels * math.prod(self.partition.kernel)

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


_Position: TypeAlias = tuple[int, ...]
"""A candidate: for every dimension of the axes, which of the cuts."""


@dc.dataclass(slots=True)
class _Priced:
    """Candidates of a way, and what they cost."""

    way: _Way
    index: Array
    cycles: Array
    memory: Array

    def position(self, number: int) -> _Position:
        """Of one of them."""
        return tuple(self.index[number].tolist())


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
        return _plan(*front.candidates[0], target)
    bound = memory_proportion * target.bytes_per_tile
    while bound < 2 * target.bytes_per_tile and front.memory[0] > bound:
        bound *= 2
    fitting = int(np.searchsorted(front.memory, bound, side="right"))
    # The last one, the fastest of all, if nothing fits.
    return _plan(*front.candidates[fitting - 1], target)


@dc.dataclass(frozen=True, slots=True)
class _Front:
    """Candidates not beaten in both cycles and memory: smallest first, fastest last."""

    candidates: tuple[tuple[_Way, _Position], ...]
    memory: Array


@functools.lru_cache(maxsize=16384)
def _front(product: Product, target: Target) -> _Front:
    """All that is worth knowing about the partitions of a product."""
    ways = [
        _Way(variant, vertex, axes_of(variant.product, vertex.grains, target.tiles_per_ipu))
        for variant in variants_of(product)
        for vertex in vertices_for(variant.product, target, variant.name != "plain")
    ]
    tiles = target.tiles_per_ipu
    groups = [_price(way, coarse(way.axes, tiles, _budget(way)), target) for way in ways]
    seen: set[_Position] = set()
    for _ in range(_ROUNDS):
        seeds = _best(groups, target)
        fresh = [(i, at) for i, at in seeds if (id(groups[i].way), *at) not in seen]
        if not fresh:
            break
        seen.update((id(groups[i].way), *at) for i, at in fresh)
        for i in {i for i, _ in fresh}:
            starts = np.array([at for j, at in fresh if i == j])
            way = groups[i].way
            groups.append(_price(way, around(way.axes, starts, tiles), target))
    return _pareto(groups)


def _budget(way: _Way) -> int:
    """Candidates of the coarse grid; fewer where the best are seldom found."""
    seldom = way.vertex.kind == "hmac" or way.variant.name != "plain"
    return _BUDGET // 3 if seldom and not way.variant.product.scalar else _BUDGET


def _price(way: _Way, index: Array, target: Target) -> _Priced:
    costs = estimate(way.variant, way.vertex, way.axes.cuts(index), target)
    return _Priced(way, index, costs.cycles, costs.temporary_bytes)


def _best(groups: list[_Priced], target: Target) -> list[tuple[int, _Position]]:
    """The best candidate under each of the guides' bounds, and those of other ways close to it."""
    seeds: dict[tuple[int, int], None] = {}
    for guide in _GUIDES:
        best: dict[int, tuple[float, int, int]] = {}
        for i, group in enumerate(groups):
            if guide:
                fits = group.memory <= guide * target.bytes_per_tile
                score = np.where(fits, group.cycles, np.inf)
            else:
                score = np.where(np.isfinite(group.cycles), group.memory, np.inf)
            at = int(np.argmin(score))
            way = id(group.way)
            if score[at] < best.get(way, (np.inf,))[0]:
                best[way] = float(score[at]), i, at
        close = _CLOSE * min((score for score, _, _ in best.values()), default=0.0)
        for score, i, at in best.values():
            if score <= close:
                seeds[i, at] = None
    return [(i, groups[i].position(at)) for i, at in seeds]


def _pareto(groups: list[_Priced]) -> _Front:
    cycles = np.concatenate([group.cycles for group in groups])
    memory = np.concatenate([group.memory for group in groups])
    starts = np.cumsum([0, *(len(group.cycles) for group in groups)])
    order = np.lexsort((cycles, memory))
    order = order[np.isfinite(cycles[order])]
    fastest = np.minimum.accumulate(cycles[order])
    kept = order[np.concatenate([[True], fastest[1:] < fastest[:-1]])]
    which = np.searchsorted(starts, kept, side="right") - 1
    rows = zip(which.tolist(), (kept - starts[which]).tolist(), strict=True)
    candidates = tuple((groups[i].way, groups[i].position(at)) for i, at in rows)
    return _Front(candidates, memory[kept])


def _plan(way: _Way, position: _Position, target: Target) -> Plan:
    axes = way.axes
    costs = estimate(way.variant, way.vertex, axes.cuts(np.array([position])), target)
    cuts = [choice[i] for choice, i in zip(axes.choices, position[:-1], strict=True)]
    serial_in, serial_out, early = axes.serial[position[-1]]
    return Plan(
        variant=way.variant,
        vertex=way.vertex,
        partition=Partition(*axes.by_kind(cuts)),
        serial_in=serial_in,
        serial_out=serial_out,
        early=bool(early),
        cycles_by_term=tuple(zip(TERMS, costs.terms[:, 0].tolist(), strict=True)),
        temporary_bytes=float(costs.temporary_bytes[0]),
    )
