"""The stages that cuts may have, as the edges of a graph, and the least sums along its paths.

A node is a boundary between stages with the segment that it lies before; a cut goes from node to
node, and the edges between them are its stages.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence

import numpy as np

from ipujax.planner.alternative import Alternative
from ipujax.planner.task_times import (
    BACKWARD,
    CONSTANT,
    DELAY,
    FORWARD,
    PARAMETERS,
    RECOMPUTED,
    STASH,
    UPDATE,
    WEIGHTS,
)


@dc.dataclass(frozen=True, eq=False)
class StageSums:
    """The numbers that each stage adds to a sum: one for its begin, and one for its end.

    Attributes:
      entering: float64 [stages, segments + 1]: by the segment with which a stage begins.
      leaving: float64 [stages, segments + 1]: by the segment behind its last.
    """

    entering: np.ndarray
    leaving: np.ndarray


def sum_path(alternative: Alternative, path: np.ndarray) -> StageSums:
    """Returns what each stage adds to the seconds of a path through a schedule.

    Args:
      alternative: all choices but the cut.
      path: float64 [stages, COLUMNS]: how often each of the things that a stage takes counts.
    """
    costs = alternative.stage_costs
    names = ("forward", "backward", "weight", "update")
    rows = np.array([*(costs.prefixes[name] for name in names), alternative.parameter_sums])
    leaving = path[:, [FORWARD, BACKWARD, WEIGHTS, UPDATE, PARAMETERS]] @ rows
    if costs.recompute:
        leaving += path[:, RECOMPUTED, None] * costs.prefixes["least activations"]
    entering = path[:, DELAY, None] * costs.boundary_seconds - leaving + path[:, CONSTANT, None]
    stash_entering, stash_leaving = costs.stash_sums
    entering, leaving = (
        entering + path[:, STASH, None] * stash_entering,
        leaving + path[:, STASH, None] * stash_leaving,
    )
    if alternative.offloads.any():
        store_counts = alternative.offloads * (path[:, FORWARD] + path[:, BACKWARD])
        store_counts = store_counts[:, None] / costs.costs.host_bytes_per_second
        entering, leaving = (
            entering + store_counts * stash_entering,
            leaving + store_counts * stash_leaving,
        )
    return StageSums(entering, leaving)


def find_least_sum(sums: StageSums) -> float:
    """Finds the least that the stages of a cut add up to, whether or not they are possible."""
    least_after = np.full(sums.entering.shape[1], np.inf)
    least_after[-1] = 0.0
    for entering, leaving in zip(sums.entering[::-1], sums.leaving[::-1], strict=True):
        onward = np.minimum.accumulate((leaving + least_after)[::-1])[::-1]
        least_after = np.append(entering[:-1] + onward[1:], np.inf)
    return float(least_after[0])


class StageGraph:
    """The stages that cuts may have.

    Args:
      possible: bool [stages, segments + 1, segments + 1]: whether a stage may begin with a segment
        and end before another.
    """

    def __init__(self, possible: np.ndarray):
        self.possible = possible
        self._penalty = np.where(possible, np.float32(0), np.float32(np.inf))  # added to sums

    def find_least_after(self, sums: StageSums) -> np.ndarray:
        """Finds the least that the stages after each boundary add up to, by where it is.

        Returns:
          float64 [stages + 1, segments + 1]: for each boundary and the segment that it lies before;
            inf where no stages are possible.
        """
        stages, positions = sums.entering.shape
        least_after = np.full((stages + 1, positions), np.inf)
        least_after[stages, -1] = 0.0
        for stage in reversed(range(stages)):
            onward = sums.leaving[stage] + least_after[stage + 1] + self._penalty[stage]
            least_after[stage] = sums.entering[stage] + onward.min(axis=1)
        return least_after

    def find_least_before(self, sums: StageSums) -> np.ndarray:
        """Finds the least that the stages before each boundary add up to, as `find_least_after`."""
        stages, positions = sums.entering.shape
        least_before = np.full((stages + 1, positions), np.inf)
        least_before[0, 0] = 0.0
        for stage in range(stages):
            onward = (least_before[stage] + sums.entering[stage])[:, None] + self._penalty[stage]
            least_before[stage + 1] = onward.min(axis=0) + sums.leaving[stage]
        return least_before

    def trace_cut(self, sums: StageSums, least_after: np.ndarray) -> np.ndarray:
        """Returns the cut whose stages add up to the least sum, int64 [stages + 1].

        Args:
          sums: what each stage adds.
          least_after: what `find_least_after` finds for these sums.
        """
        positions = [0]
        for stage in range(len(sums.entering)):
            penalty = self._penalty[stage, positions[-1]]
            onward = sums.leaving[stage] + least_after[stage + 1] + penalty
            positions.append(int(onward.argmin()))
        return np.array(positions)

    def has_cut(self, cut: np.ndarray) -> bool:
        """Returns whether a cut, int64 [stages + 1], has possible stages only."""
        return bool(self.possible[np.arange(len(self.possible)), cut[:-1], cut[1:]].all())

    def count_cuts(self) -> np.ndarray:
        """Counts the cuts by where each boundary is, float64 [stages + 1, segments + 1]."""
        stages, positions = self.possible.shape[:2]
        cuts_before, cuts_after = np.zeros((2, stages + 1, positions))
        cuts_before[0, 0] = cuts_after[stages, -1] = 1.0
        for stage in range(stages):
            cuts_before[stage + 1] = cuts_before[stage] @ self.possible[stage]
        for stage in reversed(range(stages)):
            cuts_after[stage] = self.possible[stage] @ cuts_after[stage + 1]
        return cuts_before * cuts_after

    def find_bottleneck(self, tables: Sequence[PathTable]) -> tuple[np.ndarray, float]:
        """Finds the cut whose worst stage forces the fewest seconds.

        Returns:
          int64 [stages + 1]; and the seconds that no cut is faster than, inf if there is none.
        """
        stages, positions = self.possible.shape[:2]
        worst = np.full((stages + 1, positions), np.inf)
        worst[stages, -1] = -np.inf
        ends = np.zeros((stages, positions), int)
        for stage in reversed(range(stages)):
            forced = np.maximum(self._bound_stage(stage, tables), worst[stage + 1])
            ends[stage] = forced.argmin(axis=1)
            worst[stage] = forced.min(axis=1)
        cut = [0]
        for stage in range(stages):
            cut.append(int(ends[stage, cut[-1]]))
        return np.array(cut), float(worst[0, 0])

    def keep_faster(self, tables: Sequence[PathTable], limit: float) -> StageGraph:
        """Returns the graph without the stages that only cuts as slow as a limit have."""
        stages = range(len(self.possible))
        return StageGraph(np.array([self._bound_stage(s, tables) < limit for s in stages]))

    def keep_between(self, first: np.ndarray, last: np.ndarray) -> StageGraph:
        """Returns the graph of the cuts whose boundaries are in some ranges.

        Args:
          first: int64 [stages + 1]: the smallest positions.
          last: the largest.
        """
        positions = np.arange(self.possible.shape[1])
        inside = (positions >= first[:, None]) & (positions <= last[:, None])
        return StageGraph(self.possible & inside[:-1, :, None] & inside[1:, None, :])

    def _bound_stage(self, stage: int, tables: Sequence[PathTable]) -> np.ndarray:
        """Returns the least seconds of cuts with each possible stage, float64 [starts, ends]."""
        forced = np.full(self.possible.shape[1:], -np.inf)
        for table in tables:
            np.maximum(
                forced, table.least_before[stage][:, None] + table.least_after[stage], out=forced
            )
        return np.where(self.possible[stage], forced, np.inf)


class PathTable:
    """The least seconds of a path, or of a mean of some, before and after each stage.

    Args:
      graph: the stages that cuts may have.
      sums: what each stage adds to the path.

    Attributes:
      sums: what each stage adds to the path.
      least_before: float64 [stages, segments + 1]: what the stages before one add at the least, and
        what this one adds for the segment with which it begins.
      least_after: float64 [stages, segments + 1]: what the stages after one add at the least, and
        what this one adds for the segment before which it ends.
    """

    def __init__(self, graph: StageGraph, sums: StageSums):
        self.sums = sums
        self.least_before = graph.find_least_before(sums)[:-1] + sums.entering
        self.least_after = graph.find_least_after(sums)[1:] + sums.leaving
