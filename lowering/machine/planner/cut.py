"""The candidates of the plan search: the cuts of each dimension that are worth trying."""

from __future__ import annotations

import dataclasses as dc
import functools
import itertools
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from lowering.machine.planner.planner_constants import find_divisors
from lowering.machine.planner.product import Product
from lowering.machine.planner.tiles import Array, Cuts, Grains, ceil_div

_T = TypeVar("_T")


@functools.lru_cache(maxsize=4096)
def distinct_cuts(count: int, limit: int) -> tuple[int, ...]:
    """Returns numbers of parts that leave the largest part smaller than fewer parts would.

    Each is the least that does; the next even one beside it, because pairs of tiles share a bus.

    Args:
      count: the extent that is cut.
      limit: parts at most.
    """
    distinct = {1}
    cuts = 1
    max_cuts = min(count, limit)
    while cuts <= max_cuts:
        largest = ceil_div(count, cuts)
        distinct.add(cuts)
        if cuts % 2 and cuts < max_cuts and ceil_div(count, cuts + 1) == largest:
            distinct.add(cuts + 1)
        if largest == 1:
            break
        cuts = ceil_div(count, largest - 1)
    return tuple(sorted(distinct))


@dc.dataclass(frozen=True, slots=True)
class CutAxes:
    """The cuts to choose from, for every dimension of a product in some grains.

    The dimensions are: groups, batch, every field dimension, every kernel dimension, input
    channels, output channels; and the serial cuts as one.

    Attributes:
      choices: cuts of every dimension but the serial ones.
      serial: pairs of cuts of input and output channels, and whether inputs are sent before.
      rank: field dimensions.
    """

    choices: tuple[tuple[int, ...], ...]
    serial: tuple[tuple[int, int, int], ...]
    rank: int

    @property
    def cuts_per_axis(self) -> tuple[int, ...]:
        """The number of cuts of each dimension, the serial cuts last."""
        return (*(len(choice) for choice in self.choices), len(self.serial))

    def cuts_at(self, index: Array) -> Cuts:
        """Returns the candidates at int64 [candidates, dimensions] positions in `choices`."""
        columns = [np.asarray(choice)[index[:, i]] for i, choice in enumerate(self.choices)]
        return Cuts(*self.group_by_kind(columns), *np.asarray(self.serial)[index[:, -1]].T)

    def group_by_kind(
        self, values: Sequence[_T]
    ) -> tuple[_T, _T, tuple[_T, ...], tuple[_T, ...], _T, _T]:
        """Groups one value per dimension as partitions do: fields and kernels together."""
        groups, batch, *extents, ins, outs = values
        return groups, batch, tuple(extents[: self.rank]), tuple(extents[self.rank :]), ins, outs

    @property
    def uncut_serial_index(self) -> int:
        """The position of the serial cuts that cut nothing."""
        return self.serial.index((1, 1, 0))

    @property
    def free_axis(self) -> int:
        """The dimension with the most cuts."""
        return max(range(len(self.choices)), key=lambda i: len(self.choices[i]))

    def fill_free_axis(self, index: Array, tiles: int) -> Array:
        """Returns the candidates that fit, with the free dimension cut as far as tiles allow."""
        positions = index.copy()
        positions[:, self.free_axis] = 0
        tiles_used = self.count_tiles_of_cuts(positions)
        positions, tiles_used = positions[tiles_used <= tiles], tiles_used[tiles_used <= tiles]
        choice = np.asarray(self.choices[self.free_axis])
        positions[:, self.free_axis] = (
            np.searchsorted(choice, tiles // tiles_used, side="right") - 1
        )
        return positions

    def unique_candidates(self, index: Array) -> Array:
        """Returns each candidate once."""
        key = np.ravel_multi_index(tuple(index.T), self.cuts_per_axis)
        return index[np.unique(key, return_index=True)[1]]

    def count_tiles_of_cuts(self, index: Array) -> Array:
        """Returns the number of tiles that each candidate takes."""
        total = np.ones(len(index), dtype=np.int64)
        for i, choice in enumerate(self.choices):
            if len(choice) > 1:
                total *= np.asarray(choice)[index[:, i]]
        return total


def find_cut_axes(product: Product, grains: Grains, tiles: int) -> CutAxes:
    """Returns the cuts of a product that are worth trying.

    The last kernel dimension stays whole, input channels are cut serially into equal parts only,
    and only one of input and output channels is cut serially (poplibs: ConvModel.cpp).

    Args:
      product: the product that is cut.
      grains: the grains that stay together.
      tiles: tiles of an IPU.
    """
    groups, in_grains, out_grains = grains.count_grains(product)
    counts = (groups, product.batch, *product.field, *product.kernel[:-1], 1, in_grains, out_grains)
    outs = distinct_cuts(out_grains, out_grains)[1:]
    ins = [cut for cut in find_divisors(product.in_channels) if 1 < cut <= in_grains]
    # In the order in which a step to the next changes least.
    serial = [(1, cut, 0) for cut in outs[::-1]] + [(1, 1, 0)]
    serial += [(1, cut, 1) for cut in outs] + [(cut, 1, 0) for cut in ins[::-1]]
    choices = tuple(distinct_cuts(max(1, count), tiles) for count in counts)
    return CutAxes(choices, tuple(serial), len(product.field))


def build_coarse_grid(axes: CutAxes, tiles: int, budget: int) -> Array:
    """Builds a coarse grid of candidates: int64 [candidates, dimensions].

    The dimension with most cuts takes the tiles that the others leave, or half of these, or one.

    Args:
      axes: the cuts to choose from.
      tiles: tiles of an IPU.
      budget: candidates at most, about.
    """
    lengths = axes.cuts_per_axis
    free = axes.free_axis
    cut_dimensions = [i for i, length in enumerate(lengths) if length > 1 and i != free]
    index = np.zeros((1, len(lengths)), dtype=np.int64)
    remaining_budget = budget / 3
    for done, i in enumerate(sorted(cut_dimensions, key=lengths.__getitem__)):
        picks_per_dimension = int(remaining_budget ** (1 / (len(cut_dimensions) - done)))
        picks = _sample_positions(lengths[i], max(3, picks_per_dimension))
        if i == len(lengths) - 1:
            picks = np.union1d(picks, axes.uncut_serial_index)
        remaining_budget /= len(picks)
        index = np.repeat(index, len(picks), axis=0)
        index[:, i] = np.tile(picks, len(index) // len(picks))
        index = index[axes.count_tiles_of_cuts(index) <= tiles]
    uncut = index.copy()
    uncut[:, free] = 0
    return axes.unique_candidates(
        np.concatenate(
            [axes.fill_free_axis(index, tiles), axes.fill_free_axis(index, tiles // 2), uncut]
        )
    )


def _sample_positions(length: int, max_positions: int) -> Array:
    """Returns positions at about equal steps, both ends among them."""
    if length <= max_positions:
        return np.arange(length)
    return np.unique(np.round(np.linspace(0, length - 1, max_positions)).astype(np.int64))


_STEPS = (-9, -4, -2, -1, 0, 1, 2, 4, 9)


def build_neighbours(axes: CutAxes, seeds: Array, tiles: int) -> Array:
    """Returns candidates that differ from a seed by a step in two dimensions.

    The dimension with most cuts stays as it is, or takes the tiles that the others leave.

    Args:
      axes: the cuts to choose from.
      seeds: int64 [seeds, dimensions].
      tiles: tiles of an IPU.
    """
    lengths = np.asarray(axes.cuts_per_axis)
    moving = [i for i in range(len(lengths)) if lengths[i] > 1]
    neighbours = (seeds[:, None, :] + _steps_in_pairs(tuple(moving), len(lengths))[None]).reshape(
        -1, len(lengths)
    )
    neighbours = neighbours[((neighbours >= 0) & (neighbours < lengths)).all(axis=1)]
    neighbours = axes.unique_candidates(
        np.concatenate([neighbours, axes.fill_free_axis(neighbours, tiles)])
    )
    return neighbours[axes.count_tiles_of_cuts(neighbours) <= tiles]


@functools.lru_cache(maxsize=256)
def _steps_in_pairs(moving: Sequence[int], rank: int) -> Array:
    """Returns steps in every pair of the dimensions: int64 [moves, rank]."""
    moves: list[Array] = [np.zeros((1, rank), dtype=np.int64)]
    for a, b in [*itertools.combinations(moving, 2)] or [(i, i) for i in moving]:
        grid = np.zeros((len(_STEPS) ** 2, rank), dtype=np.int64)
        grid[:, a], grid[:, b] = np.repeat(_STEPS, len(_STEPS)), np.tile(_STEPS, len(_STEPS))
        moves.append(grid)
    return np.concatenate(moves)
