"""The candidates of the search: which cuts of each dimension are worth trying."""

from __future__ import annotations

import dataclasses as dc
import functools
import itertools
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from lowering.machine.planner.constants import divisors
from lowering.machine.planner.product import Product
from lowering.machine.planner.tiles import Array, Cuts, Grains, ceil_div

_T = TypeVar("_T")


@functools.lru_cache(maxsize=4096)
def distinct_cuts(count: int, limit: int) -> tuple[int, ...]:
    """Numbers of parts that leave the largest part smaller than fewer parts would.

    Each is the least that does; the next even one beside it, because pairs of tiles share a bus.

    Args:
      count: what is cut.
      limit: parts at most.
    """
    distinct = {1}
    cuts = 1
    most = min(count, limit)
    while cuts <= most:
        largest = ceil_div(count, cuts)
        distinct.add(cuts)
        if cuts % 2 and cuts < most and ceil_div(count, cuts + 1) == largest:
            distinct.add(cuts + 1)
        if largest == 1:
            break
        cuts = ceil_div(count, largest - 1)
    return tuple(sorted(distinct))


@dc.dataclass(frozen=True, slots=True)
class Axes:
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
    def lengths(self) -> tuple[int, ...]:
        """How many cuts each dimension has, the serial ones last."""
        return (*(len(choice) for choice in self.choices), len(self.serial))

    def cuts(self, index: Array) -> Cuts:
        """The candidates of int64 [candidates, dimensions] positions in `choices`."""
        columns = [np.asarray(choice)[index[:, i]] for i, choice in enumerate(self.choices)]
        return Cuts(*self.by_kind(columns), *np.asarray(self.serial)[index[:, -1]].T)

    def by_kind(
        self, values: Sequence[_T]
    ) -> tuple[_T, _T, tuple[_T, ...], tuple[_T, ...], _T, _T]:
        """What there is of every dimension, as partitions have it: fields and kernels together."""
        groups, batch, *extents, ins, outs = values
        return groups, batch, tuple(extents[: self.rank]), tuple(extents[self.rank :]), ins, outs

    @property
    def whole(self) -> int:
        """The position of the serial cuts that cut nothing."""
        return self.serial.index((1, 1, 0))

    @property
    def free(self) -> int:
        """The dimension with most cuts."""
        return max(range(len(self.choices)), key=lambda i: len(self.choices[i]))

    def filled(self, index: Array, tiles: int) -> Array:
        """The candidates that fit, with the free dimension cut as often as `tiles` allow."""
        filled = index.copy()
        filled[:, self.free] = 0
        used = self.tiles(filled)
        filled, used = filled[used <= tiles], used[used <= tiles]
        choice = np.asarray(self.choices[self.free])
        filled[:, self.free] = np.searchsorted(choice, tiles // used, side="right") - 1
        return filled

    def unique(self, index: Array) -> Array:
        """Each candidate once."""
        key = np.ravel_multi_index(tuple(index.T), self.lengths)
        return index[np.unique(key, return_index=True)[1]]

    def tiles(self, index: Array) -> Array:
        """Tiles that the candidates take."""
        total = np.ones(len(index), dtype=np.int64)
        for i, choice in enumerate(self.choices):
            if len(choice) > 1:
                total *= np.asarray(choice)[index[:, i]]
        return total


def axes_of(product: Product, grains: Grains, tiles: int) -> Axes:
    """The cuts worth trying.

    The last kernel dimension stays whole, input channels are cut serially into equal parts only,
    and only one of input and output channels is cut serially (poplibs: ConvModel.cpp).

    Args:
      product: what is cut.
      grains: what stays together.
      tiles: of an IPU.
    """
    groups, in_grains, out_grains = grains.of(product)
    counts = (groups, product.batch, *product.field, *product.kernel[:-1], 1, in_grains, out_grains)
    outs = distinct_cuts(out_grains, out_grains)[1:]
    ins = [cut for cut in divisors(product.in_channels) if 1 < cut <= in_grains]
    # In the order in which a step to the next changes least.
    serial = [(1, cut, 0) for cut in outs[::-1]] + [(1, 1, 0)]
    serial += [(1, cut, 1) for cut in outs] + [(cut, 1, 0) for cut in ins[::-1]]
    choices = tuple(distinct_cuts(max(1, count), tiles) for count in counts)
    return Axes(choices, tuple(serial), len(product.field))


def coarse(axes: Axes, tiles: int, budget: int) -> Array:
    """A coarse grid of candidates: int64 [candidates, dimensions].

    The dimension with most cuts takes what the others leave of the tiles, or half of it, or one.

    Args:
      axes: the cuts to choose from.
      tiles: of an IPU.
      budget: candidates at most, about.
    """
    lengths = axes.lengths
    free = axes.free
    others = [i for i, length in enumerate(lengths) if length > 1 and i != free]
    index = np.zeros((1, len(lengths)), dtype=np.int64)
    left = budget / 3
    for done, i in enumerate(sorted(others, key=lengths.__getitem__)):
        most = int(left ** (1 / (len(others) - done)))
        picks = _spread(lengths[i], max(3, most))
        if i == len(lengths) - 1:
            picks = np.union1d(picks, axes.whole)
        left /= len(picks)
        index = np.repeat(index, len(picks), axis=0)
        index[:, i] = np.tile(picks, len(index) // len(picks))
        index = index[axes.tiles(index) <= tiles]
    alone = index.copy()
    alone[:, free] = 0
    return axes.unique(
        np.concatenate([axes.filled(index, tiles), axes.filled(index, tiles // 2), alone])
    )


def _spread(length: int, most: int) -> Array:
    """Positions at about equal steps, both ends among them."""
    if length <= most:
        return np.arange(length)
    return np.unique(np.round(np.linspace(0, length - 1, most)).astype(np.int64))


_STEPS = (-9, -4, -2, -1, 0, 1, 2, 4, 9)


def around(axes: Axes, seeds: Array, tiles: int) -> Array:
    """Candidates that differ from a seed by a step in two dimensions.

    The dimension with most cuts stays as it is, or takes what the others leave of the tiles.

    Args:
      axes: the cuts to choose from.
      seeds: int64 [seeds, dimensions].
      tiles: of an IPU.
    """
    lengths = np.asarray(axes.lengths)
    moving = [i for i in range(len(lengths)) if lengths[i] > 1]
    near = (seeds[:, None, :] + _moves(tuple(moving), len(lengths))[None]).reshape(-1, len(lengths))
    near = near[((near >= 0) & (near < lengths)).all(axis=1)]
    near = axes.unique(np.concatenate([near, axes.filled(near, tiles)]))
    return near[axes.tiles(near) <= tiles]


@functools.lru_cache(maxsize=256)
def _moves(moving: Sequence[int], rank: int) -> Array:
    """Steps in every pair of the dimensions: int64 [moves, rank]."""
    moves: list[Array] = [np.zeros((1, rank), dtype=np.int64)]
    for a, b in [*itertools.combinations(moving, 2)] or [(i, i) for i in moving]:
        grid = np.zeros((len(_STEPS) ** 2, rank), dtype=np.int64)
        grid[:, a], grid[:, b] = np.repeat(_STEPS, len(_STEPS)), np.tile(_STEPS, len(_STEPS))
        moves.append(grid)
    return np.concatenate(moves)
