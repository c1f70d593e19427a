"""The search for a product's plan: the fastest partition whose temporary memory is in bounds.

The original bounds a tree of partitions with a constraint solver (poplibs: popsolver). Here a
coarse grid of candidates is priced at once, then the neighbours of the best ones, until nothing
improves. Which candidates are priced does not depend on the memory that a plan may take, so more
memory never gives a slower plan.
"""

from __future__ import annotations

import bisect
import dataclasses as dc
import functools
import math
from typing import TypeAlias

import numpy as np

from lowering.ground import InternalError
from lowering.machine.planner.cut import CutAxes, build_coarse_grid, build_neighbours, find_cut_axes
from lowering.machine.planner.estimate import TERMS, estimate_candidates, estimate_work_space
from lowering.machine.planner.plan_variants import Variant, find_variants
from lowering.machine.planner.planner_constants import DEFAULT_PROPORTION
from lowering.machine.planner.product import Product
from lowering.machine.planner.tiles import Array
from lowering.machine.planner.vertices import Vertex, find_vertices
from lowering.machine.target import Target

_BUDGET = 4500
_ROUNDS = 4
_CLOSE = 1.3
_SLOWER, _SMALLER = 1.04, 2 / 3
"""A plan that is faster by less than the estimate's own error is not taken for much more memory.

Dense products are estimated within 2.3 % (median) and 7 % (nine in ten), so 4 % say little.
[D] The size tests of a small ResNet (five rows) follow the smaller of two such plans; with 5 % one
dense product of PopSparse would be estimated worse, with 4 % none is.
"""
_GUIDES = (1e9, 0.6, 0.3, 0.1, 0.03, 0.0)
"""Shares of a tile's memory for which the search looks for the fastest plan; 0: the smallest."""


@dc.dataclass(frozen=True, slots=True)
class Partition:
    """The number of parts of each dimension; parts are on different tiles."""

    groups: int
    batch: int
    field: tuple[int, ...]
    kernel: tuple[int, ...]
    in_channels: int
    out_channels: int


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan: the cuts, the vertex and the shape with which a product is computed.

    Attributes:
      variant: the shape that is cut, and the tensors that are rearranged for it.
      vertex: the vertex that computes.
      partition: the number of parts on different tiles.
      serial_in: parts of the input channels, one after the other.
      serial_out: parts of the output channels, one after the other.
      early: whether inputs are sent once, before the loop over serial parts.
      cycles_by_term: tile cycles of each of `TERMS`, all serial parts together, without syncs.
      temporary_bytes: on the largest tile, as the search bounds them: with sums.
      space_bytes: on the largest tile, beside operands and result.
    """

    variant: Variant
    vertex: Vertex
    partition: Partition
    serial_in: int
    serial_out: int
    early: bool
    cycles_by_term: tuple[tuple[str, float], ...]
    temporary_bytes: float
    space_bytes: float

    @property
    def vertex_kind(self) -> str:
        """The kind of the vertex."""
        return self.vertex.kind

    @property
    def tiles_taking_part(self) -> int:
        """The number of tiles that take part."""
        cut = self.partition
        return cut.groups * cut.batch * math.prod(cut.field) * cut.out_channels * self.depth

    @property
    def depth(self) -> int:
        """The number of partials of each output element, on different tiles."""
        return self.partition.in_channels * math.prod(self.partition.kernel)

    @property
    def serial_parts(self) -> int:
        """The number of serial parts."""
        return self.serial_in * self.serial_out

    @property
    def plan_cycles(self) -> float:
        """Tile cycles of compute and exchange, without syncs."""
        return sum(cycles for _, cycles in self.cycles_by_term)


@dc.dataclass(frozen=True, slots=True)
class _SearchSpace:
    """A variant and a vertex: one space of partitions."""

    variant: Variant
    vertex: Vertex
    axes: CutAxes


_Position: TypeAlias = tuple[int, ...]
"""A candidate: for every dimension of the axes, which of the cuts."""


@dc.dataclass(slots=True)
class _EstimatedCandidates:
    """Candidates of one search space, with their costs."""

    way: _SearchSpace
    index: Array
    cycles: Array
    memory: Array

    def position_of_candidate(self, number: int) -> _Position:
        """Returns the position of one candidate."""
        return tuple(self.index[number].tolist())


@functools.lru_cache(maxsize=65536)
def plan_product(
    product: Product, target: Target, memory_proportion: float = DEFAULT_PROPORTION
) -> Plan:
    """Finds the plan of a product on one IPU.

    If nothing fits, the bound doubles until it reaches two tiles, and is then dropped; a proportion
    of 0 asks for the least memory (poplibs: ConvPlan.cpp).

    Args:
      product: the product; none of its extents may be 0.
      target: the chip.
      memory_proportion: the share of a tile's memory that temporary data may fill.

    Raises:
      InternalError: if one of the extents is 0.
    """
    if not product.macs:
        raise InternalError("A product with an empty extent computes nothing and has no plan.")
    front = _find_pareto_front(product, target)
    chosen = front.choose_candidate(memory_proportion, target)
    return _plan_at_position(*front.candidates[chosen], target)


def find_least_proportion(product: Product, target: Target, memory_proportion: float) -> float:
    """Returns the least memory proportion with the plan of another one, or that one itself.

    Args:
      product: the product; none of its extents may be 0.
      target: the chip.
      memory_proportion: the other one.
    """
    front = _find_pareto_front(product, target)
    chosen = front.choose_candidate(memory_proportion, target)
    least = math.nextafter(float(front.memory[chosen]) / target.bytes_per_tile, math.inf)
    return least if front.choose_candidate(least, target) == chosen else memory_proportion


@dc.dataclass(frozen=True, slots=True)
class _ParetoFront:
    """Candidates not beaten in cycles and memory: smallest first, fastest last; see `_SLOWER`."""

    candidates: tuple[tuple[_SearchSpace, _Position], ...]
    memory: Array

    def choose_candidate(self, memory_proportion: float, target: Target) -> int:
        """Returns the number of the fastest candidate within a share of a tile's memory."""
        if memory_proportion <= 0:
            return 0
        bound = memory_proportion * target.bytes_per_tile
        while bound < 2 * target.bytes_per_tile and self.memory[0] > bound:
            bound *= 2
        num_fitting = int(np.searchsorted(self.memory, bound, side="right"))
        # The last one, the fastest of all, if nothing fits.
        return (num_fitting or len(self.candidates)) - 1


@functools.lru_cache(maxsize=16384)
def _find_pareto_front(product: Product, target: Target) -> _ParetoFront:
    """Searches the partitions of a product for the ones not beaten in both cycles and memory."""
    spaces = [
        _SearchSpace(
            variant.with_sums_of(vertex.sums_of(variant.product)),
            vertex,
            find_cut_axes(variant.product, vertex.grains, target.tiles_per_ipu),
        )
        for variant in find_variants(product)
        for vertex in find_vertices(variant.product, target, variant.name != "plain")
    ]
    tiles = target.tiles_per_ipu
    groups = [
        _estimate_positions(
            space, build_coarse_grid(space.axes, tiles, _candidate_budget(space)), target
        )
        for space in spaces
    ]
    visited: set[_Position] = set()
    for _ in range(_ROUNDS):
        seeds = _find_seeds(groups, target)
        new_seeds = [
            (i, position) for i, position in seeds if (id(groups[i].way), *position) not in visited
        ]
        if not new_seeds:
            break
        visited.update((id(groups[i].way), *at) for i, at in new_seeds)
        for i in {i for i, _ in new_seeds}:
            starts = np.array([at for j, at in new_seeds if i == j])
            way = groups[i].way
            groups.append(
                _estimate_positions(way, build_neighbours(way.axes, starts, tiles), target)
            )
    return _merge_into_front(groups)


def _candidate_budget(space: _SearchSpace) -> int:
    """Returns the size of the coarse grid; smaller where the best plans are seldom found."""
    seldom = space.vertex.kind == "hmac" or space.variant.name != "plain"
    return _BUDGET // 3 if seldom and not space.variant.product.scalar else _BUDGET


def _estimate_positions(
    space: _SearchSpace, positions: Array, target: Target
) -> _EstimatedCandidates:
    costs = estimate_candidates(space.variant, space.vertex, space.axes.cuts_at(positions), target)
    return _EstimatedCandidates(space, positions, costs.total_term_cycles, costs.temporary_bytes)


def _find_seeds(groups: list[_EstimatedCandidates], target: Target) -> list[tuple[int, _Position]]:
    """Returns the best candidate under each guide's bound, and those of other ways close to it."""
    seeds: dict[tuple[int, int], None] = {}
    for guide in _GUIDES:
        best: dict[int, tuple[float, int, int]] = {}
        for i, group in enumerate(groups):
            if guide:
                fits = group.memory <= guide * target.bytes_per_tile
                score = np.where(fits, group.cycles, np.inf)
            else:
                score = np.where(np.isfinite(group.cycles), group.memory, np.inf)
            best_index = int(np.argmin(score))
            space = id(group.way)
            if score[best_index] < best.get(space, (np.inf,))[0]:
                best[space] = float(score[best_index]), i, best_index
        close = _CLOSE * min((score for score, _, _ in best.values()), default=0.0)
        for score, i, best_index in best.values():
            if score <= close:
                seeds[i, best_index] = None
    return [(i, groups[i].position_of_candidate(at)) for i, at in seeds]


def _merge_into_front(groups: list[_EstimatedCandidates]) -> _ParetoFront:
    cycles = np.concatenate([group.cycles for group in groups])
    memory = np.concatenate([group.memory for group in groups])
    starts = np.cumsum([0, *(len(group.cycles) for group in groups)])
    order = np.lexsort((cycles, memory))
    order = order[np.isfinite(cycles[order])]
    fastest = np.minimum.accumulate(cycles[order])
    undominated = order[np.concatenate([[True], fastest[1:] < fastest[:-1]])]
    undominated = undominated[find_worthwhile(cycles[undominated], memory[undominated])]
    group_of = np.searchsorted(starts, undominated, side="right") - 1
    groups_of_rows: list[int] = group_of.tolist()
    rows_in_groups: list[int] = (undominated - starts[group_of]).tolist()
    rows = zip(groups_of_rows, rows_in_groups, strict=True)
    candidates = tuple((groups[i].way, groups[i].position_of_candidate(row)) for i, row in rows)
    return _ParetoFront(candidates, memory[undominated])


def find_worthwhile(cycles: Array, memory: Array) -> list[int]:
    """Returns the candidates of a front that are much faster than all that are much smaller.

    Args:
      cycles: their cycles, each fewer than those before.
      memory: their memory, none less than those before.
    """
    kept: list[int] = []
    kept_cycles: list[float] = []
    kept_memory: list[float] = []
    candidates: list[tuple[float, float]] = list(zip(cycles.tolist(), memory.tolist(), strict=True))
    for number, (cycle_count, bytes_) in enumerate(candidates):
        smaller = bisect.bisect_right(kept_memory, _SMALLER * bytes_)
        if not smaller or kept_cycles[smaller - 1] > _SLOWER * cycle_count:  # the fastest of these
            kept.append(number)
            kept_cycles.append(cycle_count)
            kept_memory.append(bytes_)
    return kept


def _plan_at_position(space: _SearchSpace, position: _Position, target: Target) -> Plan:
    axes = space.axes
    candidate = space.variant, space.vertex, axes.cuts_at(np.array([position])), target
    costs = estimate_candidates(*candidate)
    cuts = [choice[i] for choice, i in zip(axes.choices, position[:-1], strict=True)]
    serial_in, serial_out, early = axes.serial[position[-1]]
    return Plan(
        variant=space.variant,
        vertex=space.vertex,
        partition=Partition(*axes.group_by_kind(cuts)),
        serial_in=serial_in,
        serial_out=serial_out,
        early=bool(early),
        cycles_by_term=tuple(zip(TERMS, costs.terms[:, 0].tolist(), strict=True)),
        temporary_bytes=float(costs.temporary_bytes[0]),
        space_bytes=float(estimate_work_space(*candidate)[0]),
    )
