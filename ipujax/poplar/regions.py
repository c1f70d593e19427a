"""Intervals of a tensor's elements: those that follow each other in memory, and even shares."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from ipujax.poplar.devices import Target
from ipujax.poplar.exceptions import check
from ipujax.poplar.tensors import Interval, Tensor

Region: TypeAlias = Interval | Sequence[Interval]
"""An interval, or several that follow each other in memory."""


def sort_into_contiguous_regions(
    tensor: Tensor, regions: Sequence[Interval], *, drops_aliases: bool
) -> list[list[Interval]]:
    """Returns intervals of a flattened tensor in the order of memory, those without gaps together.

    Args:
      tensor: the tensor.
      regions: intervals of its flattened elements.
      drops_aliases: whether of several places that are one element only the first is kept.
    """
    if not regions:
        return []
    places = np.concatenate([np.arange(each.first, each.last) for each in regions])
    elements = tensor.elements.reshape(-1)[places]
    order = np.argsort(elements, kind="stable")
    places, elements = places[order], elements[order]
    if drops_aliases:
        elements, kept = np.unique(elements, return_index=True)
        places = places[kept]
    is_next = np.diff(elements) == 1
    in_order = is_next & (np.diff(places) == 1)
    found: list[list[Interval]] = []
    begins = [0, *(np.flatnonzero(~in_order) + 1).tolist(), len(places)]
    for begin, end in itertools.pairwise(begins if len(places) else []):
        interval = Interval(int(places[begin]), int(places[end - 1]) + 1)
        if begin and is_next[begin - 1]:
            found[-1].append(interval)
        else:
            found.append([interval])
    return found


@check.guard
def splitRegions(
    regions: Sequence[Region],
    grainSize: int,
    maxPartitions: int,
    minElementsPerPartition: int = 0,
) -> list[list[Region]]:
    """Shares out intervals, in their order, as evenly as whole grains allow.

    There are as few parts as the largest of them allows.

    Args:
      regions: intervals, or lists of intervals that follow each other in memory.
      grainSize: elements that stay together.
      maxPartitions: the most parts.
      minElementsPerPartition: elements that a part has at least.

    Returns:
      For each part, its intervals, or lists of them.
    """
    grain = check.require_integer(grainSize, "grainSize", at_least=1)
    total = sum(_size_of(region) for region in regions)
    grains = -(-total // grain)
    most = -(-grains // check.require_integer(maxPartitions, "maxPartitions", at_least=1))
    least = check.require_integer(minElementsPerPartition, "minElementsPerPartition", at_least=0)
    if least:
        parts = max(1, grains // -(-least // grain))
        most = max(most, -(-grains // parts))
    parts = -(-grains // most) if grains else 0
    ends = [min(total, (part + 1) * grains // parts * grain) for part in range(parts)]
    return [_cut_out(regions, begin, end) for begin, end in itertools.pairwise([0, *ends])]


@check.guard
def splitRegionsBetweenWorkers(
    target: Target, regions: Sequence[Region], grainSize: int, minElementsPerVertex: int = 0
) -> list[list[Region]]:
    """Shares out the intervals of one tile among its workers, as `splitRegions` does.

    Args:
      target: the target, which says how many workers a tile has.
      regions: intervals, or lists of intervals that follow each other in memory.
      grainSize: elements that stay together.
      minElementsPerVertex: elements that a worker has at least.
    """
    workers = check.require_instance(target, Target, "target").getNumWorkerContexts()
    return splitRegions(regions, grainSize, workers, minElementsPerVertex)


def _size_of(region: Region) -> int:
    return sum(interval.size() for interval in _intervals_of(region))


def _intervals_of(region: Region) -> Sequence[Interval]:
    intervals = [region] if isinstance(region, Interval) else region
    for each in intervals:
        check.require_instance(each, Interval, "a region", "Intervals, or lists of them")
    return intervals


def _cut_out(regions: Sequence[Region], begin: int, end: int) -> list[Region]:
    """Returns the parts of regions from one element, counted through all of them, to another."""
    parts: list[Region] = []
    start = 0
    for region in regions:
        inside: list[Interval] = []
        for each in _intervals_of(region):
            first, last = max(begin - start, 0), min(end - start, each.size())
            if first < last:
                inside.append(Interval(each.first + first, each.first + last))
            start += each.size()
        if inside:
            parts += inside if isinstance(region, Interval) else [inside]
    return parts
