"""The least time that a stage forces on a pipeline, and the best that all stages together allow.

Whatever the schedule, before an IPU's first task a micro-batch passes all stages before it, and
after its last backward task the gradients pass back through them. Between the two it runs all tasks
of its stages. No cut can be faster than its slowest IPU in this sense; nor can the sum of all work
take less than its share of every IPU.

Where an IPU has one stage, the order of its tasks says more: see `find_turns`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ipujax.planner.alternative import Alternative, Turn
from ipujax.planner.stage_costs import Cuts
from ipujax.planner.task_times import StageTimes, longest_update, sum_by_ipu
from lowering import schedules


class SuffixBounds:
    """The least seconds, and the least excess of memory, that stages from one on can reach.

    Attributes:
      seconds: float64 [stages + 1, segments + 1]: of the stages from s on, if stage s begins at a
        segment and they fit in memory; inf where they cannot.
      excess: the same of the bytes by which the worst of these stages does not fit; negative where
        all do.
    """

    def __init__(self, alternative: Alternative):
        self._alternative = alternative
        self._pairs = alternative.stage_costs.pairs
        self._has_limit = bool(np.isfinite(alternative.memory).any())
        stages, segments = alternative.stages, len(alternative.stage_costs.costs)
        self.seconds = np.full((stages + 1, segments + 1), np.inf)
        self.excess = np.full((stages + 1, segments + 1), np.inf)
        self.seconds[stages, segments], self.excess[stages, segments] = -np.inf, -np.inf
        for stage in reversed(range(stages)):
            reached = np.maximum(self.fitting_seconds(stage), self.seconds[stage + 1])
            self.seconds[stage] = reached.min(axis=1)
            if self._has_limit:
                over = np.maximum(self.stage_excess(stage), self.excess[stage + 1])
                self.excess[stage] = over.min(axis=1)

    @property
    def least_delay(self) -> float:
        """The shortest time that something travels over a boundary, in seconds."""
        interior = self._alternative.stage_costs.boundary_seconds[1:-1]
        return float(interior.min()) if interior.size else 0.0

    def stage_seconds(self, stage: int) -> np.ndarray:
        """Returns the seconds that a stage forces, float64 [starts, ends]; inf if it is empty."""
        pairs, delays = self._pairs, stage * self.least_delay
        count = self._alternative.timed.micro_batches
        seconds = count * pairs.work + (pairs.ramps + 2 * delays)
        if self._alternative.stage_costs.splits_backward:
            # Gradients of weights may be made while those of inputs pass back.
            staying = count * (pairs.work + pairs.weight) + (pairs.lead + delays)
            seconds = np.maximum(seconds, staying)
        turns = self._alternative.timed.turns
        if turns:
            np.maximum(seconds, self._turn_seconds(turns[stage], stage), out=seconds)
        return seconds

    def _turn_seconds(self, turn: Turn, stage: int) -> np.ndarray:
        """Returns the seconds that the turn of a stage forces, float64 [starts, ends]."""
        pairs, boundaries = self._pairs, self._alternative.stages - 1
        work = turn.forward * pairs.forward + turn.backward * (pairs.work - pairs.forward)
        work += turn.weight * pairs.weight + pairs.chain + 2 * boundaries * self.least_delay
        if turn.is_twice:
            work += pairs.later + 2 * (boundaries - stage) * self.least_delay
        return work

    def stage_excess(self, stage: int) -> np.ndarray:
        """Returns the bytes that a stage has too many, float64 [starts, ends]; inf if empty."""
        pairs, in_flight = self._pairs, self._alternative.timed.in_flight[stage]
        limit = self._alternative.memory[self._alternative.device_mapping[stage]]
        return pairs.kept_bytes + in_flight * pairs.waiting_bytes - limit

    def fitting_seconds(self, stage: int) -> np.ndarray:
        """Returns the seconds that a stage forces; inf if it is empty or does not fit."""
        seconds = self.stage_seconds(stage)
        return np.where(self.does_not_fit(stage), np.inf, seconds)

    def list_possible_stages(self) -> list[np.ndarray]:
        """Returns 0 for each possible stage, and inf for those empty or too large, by stage."""
        is_empty = np.isinf(self._pairs.ramps)
        if not self._has_limit:
            return [np.where(is_empty, np.inf, 0.0)] * self._alternative.stages
        return [
            np.where(is_empty | self.does_not_fit(stage), np.inf, 0.0)
            for stage in range(self._alternative.stages)
        ]

    def does_not_fit(self, stage: int) -> np.ndarray | bool:
        """Returns whether a stage needs too many bytes, bool [starts, ends]; False for no limit."""
        return self._has_limit and self.stage_excess(stage) > 0

    @property
    def least_seconds(self) -> float:
        """A bound on the seconds of every cut that fits; inf if none does."""
        return float(self.seconds[0, 0])

    def best_cut(self) -> Cuts:
        """Returns a cut that reaches the bound of the table, [1, stages + 1]."""
        return self._trace_back(self.seconds, self.fitting_seconds)

    def balanced_cut(self) -> Cuts:
        """Returns the cut whose costliest stage works least, if stages fit, [1, stages + 1]."""
        pairs = self._pairs
        work = np.where(np.isinf(pairs.ramps), np.inf, pairs.work + pairs.weight)
        table = np.full_like(self.seconds, np.inf)
        table[-1, -1] = -np.inf

        def works_of_stage(stage: int) -> np.ndarray:
            return np.where(self.does_not_fit(stage), np.inf, work)

        for stage in reversed(range(self._alternative.stages)):
            table[stage] = np.maximum(works_of_stage(stage), table[stage + 1]).min(axis=1)
        return self._trace_back(table, works_of_stage)

    def least_excessive_cut(self) -> Cuts:
        """Returns the cut whose worst stage has the fewest bytes too many, [1, stages + 1]."""
        return self._trace_back(self.excess, self.stage_excess)

    def _trace_back(self, table: np.ndarray, values_of_stage: Callable[[int], np.ndarray]) -> Cuts:
        positions = [0]
        for stage in range(self._alternative.stages):
            row = values_of_stage(stage)[positions[-1]]
            positions.append(int(np.maximum(row, table[stage + 1]).argmin()))
        return np.array([positions])


def least_seconds_of_any_cut(alternative: Alternative) -> float:
    """Returns a bound on the seconds of all cuts: no IPU does less than its share of all work.

    Besides, a micro-batch passes all segments forward and backward.
    """
    costs, segments = alternative.stage_costs, len(alternative.stage_costs.costs)
    begin, end = np.array([0]), np.array([segments])
    forward, backward, weight, update = (
        float(take(begin, end)[0])
        for take in (costs.forward, costs.backward, costs.weight, costs.update)
    )
    work = alternative.timed.micro_batches * (forward + backward + weight)
    return max((work + update) / alternative.num_ipus, forward + backward)


def bound_seconds(alternative: Alternative, cuts: Cuts) -> np.ndarray:
    """Returns a bound on the seconds of each cut by its slowest IPU, float64 [cuts]."""
    times = alternative.stage_times(cuts)
    forward, backward, weight = (
        times.tasks[phase]
        for phase in (schedules.Phase.FORWARD, schedules.Phase.BACKWARD, schedules.Phase.WEIGHTS)
    )
    mapping, ipus = alternative.device_mapping, alternative.num_ipus
    delays = np.concatenate([np.zeros((1, len(cuts))), times.delays])
    reach = np.cumsum(delays, axis=0)[:ipus] if ipus > 1 else np.zeros((1, len(cuts)))
    before = np.concatenate([np.zeros((1, len(cuts))), forward[:-1]]).cumsum(axis=0)[:ipus] + reach
    after = np.concatenate([np.zeros((1, len(cuts))), backward[:-1]]).cumsum(axis=0)[:ipus] + reach
    count = alternative.timed.micro_batches
    work = count * sum_by_ipu(forward + backward, mapping)
    split_work = count * sum_by_ipu(weight, mapping)
    slowest = (before + np.maximum(work + after, work + split_work)).max(axis=0)
    if alternative.timed.turns:
        np.maximum(slowest, _bound_by_turns(alternative.timed.turns, times), out=slowest)
    return slowest + longest_update(times.updates, mapping)


def _bound_by_turns(turns: Sequence[Turn], times: StageTimes) -> np.ndarray:
    """Returns the seconds that the turns of the stages force, float64 [cuts]."""
    forward, backward, weight = (times.tasks[phase] for phase in schedules.Phase)
    counts = np.array([turn[:3] for turn in turns])[:, :, None]
    middle = counts[:, 0] * forward + counts[:, 1] * backward + counts[:, 2] * weight
    passes = forward + backward
    passes[:-1] += 2 * times.delays
    later = passes[::-1].cumsum(axis=0)[::-1] - (forward + backward)
    is_twice = np.array([turn.is_twice for turn in turns])[:, None]
    return (middle + passes.sum(axis=0) + is_twice * later).max(axis=0)
