"""What stages need and do at the least: which of them fit, and the share of all work."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from ipujax.planner.alternative import ROUNDING, Alternative
from ipujax.planner.stage_costs import Cuts
from ipujax.planner.stage_graph import find_least_sum, sum_path
from ipujax.planner.task_times import BACKWARD, COLUMNS, FORWARD, LEFT, UPDATE, WEIGHTS

EXCESS = 1e-9
"""A share of an IPU's memory that may be a rounding error."""


class StageTables:
    """The stages that fit in memory, and the cuts that are best in one simple respect.

    Args:
      alternative: all choices but the cut.

    Attributes:
      possible: bool [stages, segments + 1, segments + 1]: whether a stage may begin with a segment
        and end before another.
    """

    def __init__(self, alternative: Alternative):
        self._alternative = alternative
        self._pairs = alternative.stage_costs.pairs
        is_stage = np.isfinite(self._pairs.work)
        limits = alternative.memory[list(alternative.device_mapping)] * (1 + ROUNDING)
        self.possible = np.array(
            [is_stage & (self._needs(stage) <= limit) for stage, limit in enumerate(limits)]
        )

    def _needs(self, stage: int) -> np.ndarray:
        """Returns the bytes that a stage needs, float64 [starts, ends]; inf if it is empty."""
        resident = self._alternative.resident[stage]
        return self._pairs.kept_bytes + resident * self._pairs.waiting_bytes

    def _excess(self, stage: int) -> np.ndarray:
        """Returns the bytes that a stage has too many; inf if it is empty."""
        limit = self._alternative.memory[self._alternative.device_mapping[stage]]
        return self._needs(stage) - min(limit, np.finfo(float).max)

    def find_balanced_cut(self) -> np.ndarray | None:
        """Returns the cut whose costliest stage works least, if stages fit; None if none do."""
        cut, worst = self._find_cut(
            lambda stage: np.where(self.possible[stage], self._pairs.work, np.inf)
        )
        return None if np.isinf(worst) else cut

    def find_least_excessive_cut(self) -> Cuts:
        """Returns the cut whose worst stage has the fewest bytes too many, [1, stages + 1]."""
        return self._find_cut(self._excess)[0][None]

    def _find_cut(self, values_of_stage: Callable[[int], np.ndarray]) -> tuple[np.ndarray, float]:
        """Returns the cut whose largest value is least, and this value."""
        stages, segments = self._alternative.stages, len(self._alternative.stage_costs.costs)
        table = np.full((stages + 1, segments + 1), np.inf)
        table[stages, segments] = -np.inf
        for stage in reversed(range(stages)):
            table[stage] = np.maximum(values_of_stage(stage), table[stage + 1]).min(axis=1)
        positions = [0]
        for stage in range(stages):
            row = values_of_stage(stage)[positions[-1]]
            positions.append(int(np.maximum(row, table[stage + 1]).argmin()))
        return np.array(positions), float(table[0, 0])


def least_seconds_of_any_cut(alternative: Alternative) -> float:
    """Returns a bound on the seconds of all cuts, the largest number if parameters do not fit.

    No IPU does less than its share of all work; a micro-batch passes all segments forward and
    backward; and what waits meanwhile must fit in the memory of all IPUs together.
    """
    costs, segments = alternative.stage_costs, len(alternative.stage_costs.costs)
    begin, end = np.array([0]), np.array([segments])
    forward, backward, weight, update = (
        float(take(begin, end)[0])
        for take in (costs.forward, costs.backward, costs.weight, costs.update)
    )
    work = alternative.timed.micro_batches * (forward + backward + weight)
    shared_work = (work + update) / alternative.num_ipus
    return max(shared_work, forward + backward, _least_seconds_by_waiting(alternative))


def _least_seconds_by_waiting(alternative: Alternative) -> float:
    """Returns a bound on the seconds of all cuts from the bytes that wait for backward passes.

    What a segment keeps of a micro-batch waits while all segments behind it run forward and
    backward. All these bytes times their seconds, by the seconds of an update, are what waits in
    the mean (Little's law), and no IPU has less room than for its own mean.
    """
    costs, memory = alternative.stage_costs, alternative.memory
    if costs.recompute or alternative.offload or np.isinf(memory).any():
        return 0.0
    passed = costs.prefixes["forward"] + costs.prefixes["backward"]
    waiting = np.diff(costs.prefixes["least activations"]) @ (passed[-1] - passed[:-1])
    starts = np.arange(len(costs.costs))
    least_work_space = costs.workspace_bytes(starts, starts + 1).min()
    fixed = costs.prefixes["parameters"][-1] + len(memory) * least_work_space
    room = memory.sum() * (1 + ROUNDING) - fixed
    if room <= 0:
        # Less than inf: where nothing fits, the plan that lacks least may be among these.
        return sys.float_info.max if waiting > 0 else 0.0
    return float(alternative.timed.micro_batches * waiting / room) * (1 - EXCESS)


def least_seconds_by_sums(alternative: Alternative) -> float:
    """Returns a bound on the seconds of all cuts, inf if none of them fits in memory.

    It is the work of a mean IPU, with what goes to host memory; and an IPU of mean memory needs no
    more than the others at any of its moments.
    """
    work = np.zeros((alternative.stages, COLUMNS))
    work[:, [FORWARD, BACKWARD, WEIGHTS]] = alternative.timed.micro_batches
    work[:, UPDATE] = 1.0
    fullest = [paths[paths[:, :, LEFT].sum(axis=1).argmax()] for paths in alternative.memory_paths]
    if fullest:
        excess = find_least_sum(sum_path(alternative, np.mean(fullest, axis=0)))
        if excess > EXCESS:
            return np.inf
    return find_least_sum(sum_path(alternative, work / alternative.num_ipus))
