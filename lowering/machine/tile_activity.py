"""What each tile does in a call: its cycles and bytes, and the steps that take most of them."""

from __future__ import annotations

import dataclasses as dc
import heapq
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np

from lowering.machine.compute_sets import ComputeSet, Exchange

_MOST = 100  # compute sets, and exchanges, that are kept tile by tile

_Step = TypeVar("_Step", ComputeSet, Exchange)


@dc.dataclass(frozen=True, slots=True, eq=False)
class TileTotals:
    """What the tiles of an IPU do in a call.

    Attributes:
      ipu: the IPU.
      cycles: int64 [tiles], of vertices.
      received_bytes: int64 [tiles].
      sent_bytes: int64 [tiles].
    """

    ipu: int
    cycles: np.ndarray
    received_bytes: np.ndarray
    sent_bytes: np.ndarray


@dc.dataclass(frozen=True, slots=True, eq=False)
class TileActivity:
    """What the tiles of all IPUs do in a call.

    Attributes:
      totals: one for each IPU.
      compute_sets: those that take most cycles, in order.
      exchanges: those that take most cycles, in order.
    """

    totals: tuple[TileTotals, ...]
    compute_sets: tuple[ComputeSet, ...]
    exchanges: tuple[Exchange, ...]


def sum_tile_activity(
    compute_sets: Iterable[ComputeSet], exchanges: Iterable[Exchange], ipus: int, tiles: int
) -> TileActivity:
    """Sums what tiles do.

    Args:
      compute_sets: what a call executes.
      exchanges: what it moves between tiles.
      ipus: how many IPUs there are.
      tiles: the tiles of each.
    """
    cycles, received, sent = np.zeros((3, ipus, tiles), np.int64)

    def add_cycles() -> Iterator[ComputeSet]:
        for each in compute_sets:
            cycles[each.ipu] += each.tile_cycles * each.runs
            yield each

    def add_bytes() -> Iterator[Exchange]:
        for each in exchanges:
            received[each.ipu] += each.received_bytes * each.runs
            sent[each.ipu] += each.sent_bytes * each.runs
            yield each

    largest = _keep_largest(add_cycles()), _keep_largest(add_bytes())
    totals = map(TileTotals, range(ipus), cycles, received, sent)
    return TileActivity(tuple(totals), *largest)


def _keep_largest(steps: Iterator[_Step]) -> tuple[_Step, ...]:
    """Returns the steps that take most cycles, in the order in which they come."""
    pairs = heapq.nlargest(_MOST, enumerate(steps), lambda pair: pair[1].cycles * pair[1].runs)
    return tuple(step for _, step in sorted(pairs, key=lambda pair: pair[0]))
