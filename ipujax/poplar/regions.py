"""Intervals of a tensor's elements: sorted by memory, and split into even parts."""

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
    """Returns intervals of a flattened tensor in the order of memory, grouped where they adjoin.

    Args:
      tensor: the tensor.
      regions: intervals of its flattened elements.
      drops_aliases: whether repeated elements are kept only once.
    """
    if not regions:
        return []
    positions = np.concatenate([np.arange(interval.first, interval.last) for interval in regions])
    elements = tensor.elements.reshape(-1)[positions]
    order = np.argsort(elements, kind="stable")
    positions, elements = positions[order], elements[order]
    if drops_aliases:
        elements, first_indices = np.unique(elements, return_index=True)
        positions = positions[first_indices]
    is_next = np.diff(elements) == 1
    in_order = is_next & (np.diff(positions) == 1)
    contiguous_regions: list[list[Interval]] = []
    begins = [0, *(np.flatnonzero(~in_order) + 1).tolist(), len(positions)]
    for begin, end in itertools.pairwise(begins if len(positions) else []):
        interval = Interval(int(positions[begin]), int(positions[end - 1]) + 1)
        if begin and is_next[begin - 1]:
            contiguous_regions[-1].append(interval)
        else:
            contiguous_regions.append([interval])
    return contiguous_regions


@check.guard
def splitRegions(
    regions: Sequence[Region],
    grainSize: int,
    maxPartitions: int,
    minElementsPerPartition: int = 0,
) -> list[list[Region]]:
    """Splits intervals, in their order, into parts as even as whole grains allow.

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
    return [_extract_range(regions, begin, end) for begin, end in itertools.pairwise([0, *ends])]


@check.guard
def splitRegionsBetweenWorkers(
    target: Target, regions: Sequence[Region], grainSize: int, minElementsPerVertex: int = 0
) -> list[list[Region]]:
    """Splits the intervals of one tile among its workers, as `splitRegions` does.

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
    for interval in intervals:
        check.require_instance(interval, Interval, "a region", "Intervals, or lists of them")
    return intervals


def _extract_range(regions: Sequence[Region], begin: int, end: int) -> list[Region]:
    """Returns the parts of regions from one element, counted through all of them, to another."""
    parts: list[Region] = []
    start = 0
    for region in regions:
        inside: list[Interval] = []
        for interval in _intervals_of(region):
            first, last = max(begin - start, 0), min(end - start, interval.size())
            if first < last:
                inside.append(Interval(interval.first + first, interval.first + last))
            start += interval.size()
        if inside:
            parts += inside if isinstance(region, Interval) else [inside]
    return parts
