"""The stages that cuts may have, as the edges of a graph, and the least sums along its paths."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence

import numpy as np

from ipujax.planner.alternative import Alternative
from ipujax.planner.task_times import (
    AGAIN,
    BACKWARD,
    DELAY,
    FORWARD,
    LEFT,
    ONE,
    PARAMETERS,
    UPDATE,
    WEIGHTS,
)


@dc.dataclass(frozen=True, eq=False)
class StageSums:
    """The numbers that each stage adds to a sum: one for its begin, and one for its end.

    Attributes:
      entering: float64 [stages, segments + 1]: for the segment with which it begins.
      leaving: float64 [stages, segments + 1]: for the one behind its last.
    """

    entering: np.ndarray
    leaving: np.ndarray


def sum_path(alternative: Alternative, path: np.ndarray) -> StageSums:
    """Returns what stages add to the seconds of a path through a schedule.

    Args:
      alternative: all choices but the cut.
      path: float64 [stages, COLUMNS]: how often what each stage takes counts.
    """
    costs = alternative.stage_costs
    names = ("forward", "backward", "weight", "update")
    rows = np.array([*(costs.prefixes[name] for name in names), alternative.parameter_sums])
    leaving = path[:, [FORWARD, BACKWARD, WEIGHTS, UPDATE, PARAMETERS]] @ rows
    if costs.recompute:
        leaving += path[:, AGAIN, None] * costs.prefixes["least activations"]
    entering = path[:, DELAY, None] * costs.boundary_seconds - leaving + path[:, ONE, None]
    entered, left = costs.left_sums
    entering, leaving = (
        entering + path[:, LEFT, None] * entered,
        leaving + path[:, LEFT, None] * left,
    )
    if alternative.offloads.any():
        times = alternative.offloads * (path[:, FORWARD] + path[:, BACKWARD])
        times = times[:, None] / costs.costs.host_bytes_per_second
        entering, leaving = entering + times * entered, leaving + times * left
    return StageSums(entering, leaving)


def find_least_sum(sums: StageSums) -> float:
    """Finds the least that all stages add up to, whether or not each of them is possible."""
    rest = np.full(sums.entering.shape[1], np.inf)
    rest[-1] = 0.0
    for entering, leaving in zip(sums.entering[::-1], sums.leaving[::-1], strict=True):
        onward = np.minimum.accumulate((leaving + rest)[::-1])[::-1]
        rest = np.append(entering[:-1] + onward[1:], np.inf)
    return float(rest[0])


class StageGraph:
    """The stages that cuts may have.

    Args:
      possible: bool [stages, segments + 1, segments + 1]: whether a stage may begin with a segment
        and end before another.
    """

    def __init__(self, possible: np.ndarray):
        self.possible = possible
        self._barred = np.where(possible, np.float32(0), np.float32(np.inf))

    def find_rest(self, sums: StageSums) -> np.ndarray:
        """Returns the least that the stages from one on add up to, if it begins with a segment.

        Returns:
          float64 [stages + 1, segments + 1]; inf where no stages are possible.
        """
        stages, positions = sums.entering.shape
        rest = np.full((stages + 1, positions), np.inf)
        rest[stages, -1] = 0.0
        for stage in reversed(range(stages)):
            onward = (sums.leaving[stage] + rest[stage + 1] + self._barred[stage]).min(axis=1)
            rest[stage] = sums.entering[stage] + onward
        return rest

    def find_before(self, sums: StageSums) -> np.ndarray:
        """Returns the least that the stages before one add up to, as `find_rest` does."""
        stages, positions = sums.entering.shape
        before = np.full((stages + 1, positions), np.inf)
        before[0, 0] = 0.0
        for stage in range(stages):
            onward = (before[stage] + sums.entering[stage])[:, None] + self._barred[stage]
            before[stage + 1] = onward.min(axis=0) + sums.leaving[stage]
        return before

    def trace_cut(self, sums: StageSums, rest: np.ndarray) -> np.ndarray:
        """Returns the cut whose stages add up to the least sum, int64 [stages + 1]."""
        positions = [0]
        for stage in range(len(sums.entering)):
            onward = sums.leaving[stage] + rest[stage + 1] + self._barred[stage, positions[-1]]
            positions.append(int(onward.argmin()))
        return np.array(positions)

    def has_cut(self, cut: np.ndarray) -> bool:
        """Returns whether a cut, int64 [stages + 1], has possible stages only."""
        return bool(self.possible[np.arange(len(self.possible)), cut[:-1], cut[1:]].all())

    def count_cuts(self) -> np.ndarray:
        """Counts the cuts with a boundary at a segment, float64 [stages + 1, segments + 1]."""
        stages, positions = self.possible.shape[:2]
        cuts_before, cuts_after = np.zeros((2, stages + 1, positions))
        cuts_before[0, 0] = cuts_after[stages, -1] = 1.0
        for stage in range(stages):
            cuts_before[stage + 1] = cuts_before[stage] @ self.possible[stage]
        for stage in reversed(range(stages)):
            cuts_after[stage] = self.possible[stage] @ cuts_after[stage + 1]
        return cuts_before * cuts_after

    def find_bottleneck(self, tables: Sequence[PathTable]) -> tuple[np.ndarray, float]:
        """Finds the cut whose stages force the least, by what the worst of them forces.

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
        """Returns the graph without the stages that no cut below so many seconds has."""
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
        """Returns the seconds that each possible stage forces, float64 [starts, ends]."""
        forced = np.full(self.possible.shape[1:], -np.inf)
        for table in tables:
            np.maximum(forced, table.before[stage][:, None] + table.rest[stage], out=forced)
        return np.where(self.possible[stage], forced, np.inf)


class PathTable:
    """The least that a path, or a mean of some, adds up to before and after each stage.

    Args:
      graph: the stages that cuts may have.
      sums: what they add.

    Attributes:
      sums: what they add.
      before: float64 [stages, segments + 1]: what is least if a stage begins with a segment, by the
        stages before and by this.
      rest: float64 [stages, segments + 1]: what is least besides, if it ends before a segment.
    """

    def __init__(self, graph: StageGraph, sums: StageSums):
        self.sums = sums
        self.before = graph.find_before(sums)[:-1] + sums.entering
        self.rest = graph.find_rest(sums)[1:] + sums.leaving
