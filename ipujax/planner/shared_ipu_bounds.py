"""A bound on all cuts where IPUs have several stages, by weighing what each of them forces.

What an IPU forces on a pipeline is a sum over all stages, of their forward seconds times a number,
their backward seconds times another, and so on. The slowest IPU takes at least as long as any
weighted mean of them, and that has a cut that makes it least: dynamic programming finds it. The
weights that make this least as large as possible give a bound that is nearly reached; they are
found by shifting weight to the IPUs that are slow in the cut of the round before.
"""

from __future__ import annotations

import numpy as np

from ipujax.planner.alternative import Alternative
from ipujax.planner.bounds import SuffixBounds
from ipujax.planner.stage_costs import Cuts
from lowering import schedules

_ROUNDS = 60
_MOST_STEPS = 1 << 26  # of the dynamic programs of all rounds together
_STEP = 4.0  # how fast weights move at first
_PHASES = (schedules.Phase.FORWARD, schedules.Phase.BACKWARD, schedules.Phase.WEIGHTS)


class SharedIpuBounds:
    """The weighted mean of what IPUs force, with the best weights that were found.

    Args:
      alternative: one in which IPUs have several stages.
      bounds: of its stages, for what fits.

    Attributes:
      seconds: a bound on the seconds of every cut.
      rest: float64 [stages + 1, segments + 1]: the least that the stages from one on add to the
        mean, if that one begins at a segment.
      cuts: the cuts that were least in some round; [rounds, stages + 1].
    """

    def __init__(self, alternative: Alternative, bounds: SuffixBounds):
        self._alternative = alternative
        self._is_possible = bounds.list_possible_stages()
        self._factors, self._constants = _list_forces(alternative, bounds.least_delay)
        segments = len(alternative.stage_costs.costs)
        rounds = min(_ROUNDS, max(2, _MOST_STEPS // (alternative.stages * segments**2)))
        weights = np.full(len(self._constants), 1 / len(self._constants))
        self.seconds, self._best_weights = -np.inf, weights
        cuts: list[np.ndarray] = []
        for number in range(rounds):
            rest = self._fill_table(weights)
            least = rest[0, 0] + weights @ self._constants
            cut = self._trace_back(weights, rest)
            cuts.append(cut)
            if least > self.seconds:
                self.seconds, self._best_weights = float(least), weights
            forced = self.forces(cut[None])[:, 0]
            spread = forced.max() - forced.min()
            if not spread or forced.max() - least < 1e-9 * forced.max():
                break
            weights = weights * np.exp(
                _STEP / (1 + number) ** 0.5 * (forced - forced.max()) / spread
            )
            weights = weights / weights.sum()
        self.rest = self._fill_table(self._best_weights)
        self.cuts: Cuts = np.unique(np.array(cuts), axis=0)

    def stage_share(self, stage: int) -> np.ndarray:
        """Returns what a stage adds to the mean, float64 [starts, ends]; inf if it cannot be."""
        return self._stage_share(stage, self._best_weights)

    @property
    def constant(self) -> float:
        """What the mean has beside the stages."""
        return float(self._best_weights @ self._constants)

    def forces(self, cuts: Cuts) -> np.ndarray:
        """Returns what each IPU forces on cuts, in seconds, float64 [forces, cuts]."""
        times = self._alternative.stage_times(cuts)
        rows = [*(times.tasks[phase] for phase in _PHASES), times.updates]
        return np.einsum("fsp,psc->fc", self._factors, np.array(rows)) + self._constants[:, None]

    def _stage_share(self, stage: int, weights: np.ndarray) -> np.ndarray:
        pairs = self._alternative.stage_costs.pairs
        forward, backward, weight, update = weights @ self._factors[:, stage]
        share = (forward - backward) * pairs.forward + backward * pairs.work
        if weight:
            share += weight * pairs.weight
        if update:
            share += update * pairs.update
        return share + self._is_possible[stage]

    def _fill_table(self, weights: np.ndarray) -> np.ndarray:
        stages, segments = self._alternative.stages, len(self._alternative.stage_costs.costs)
        rest = np.full((stages + 1, segments + 1), np.inf)
        rest[stages, segments] = 0.0
        for stage in reversed(range(stages)):
            rest[stage] = (self._stage_share(stage, weights) + rest[stage + 1]).min(axis=1)
        return rest

    def _trace_back(self, weights: np.ndarray, rest: np.ndarray) -> np.ndarray:
        positions = [0]
        for stage in range(self._alternative.stages):
            row = self._stage_share(stage, weights)[positions[-1]] + rest[stage + 1]
            positions.append(int(row.argmin()))
        return np.array(positions)


def _list_forces(alternative: Alternative, least_delay: float) -> tuple[np.ndarray, np.ndarray]:
    """Lists what IPUs force, as sums over stages.

    Returns:
      float64 [forces, stages, 4]: what the seconds of a stage's forward, backward, weight task and
      of its update are multiplied by; and float64 [forces]: the seconds of delays.
    """
    mapping, stages = np.array(alternative.device_mapping), alternative.stages
    count, last = alternative.timed.micro_batches, stages - 1
    numbers = np.arange(stages)
    factors: list[np.ndarray] = []
    delays: list[float] = []
    for ipu, order in enumerate(alternative.timed.order_tasks_by_ipu()):
        own = mapping == ipu
        lowest = int(numbers[own].min())
        ramp = np.zeros((stages, 4))
        ramp[own] = count, count, 0, 1
        ramp[:lowest, :2] += 1
        factors.append(ramp)
        delays.append(2 * lowest * least_delay)
        first = next(i for i, (_, phase) in enumerate(order) if phase is schedules.Phase.BACKWARD)
        end = max(i for i, (_, phase) in enumerate(order) if phase is schedules.Phase.FORWARD)
        if end < first:
            continue
        turn = np.zeros((stages, 4))
        turn[:, :2] = 1
        back_to, on_from = order[first][0], order[end][0]
        turn[back_to + 1 :, 1] += 1
        turn[on_from + 1 :, 0] += 1
        turn[own, 3] = 1
        for stage, phase in order[first : end + 1]:
            turn[stage, _PHASES.index(phase)] += 1
        factors.append(turn)
        delays.append((2 * last + (last - back_to) + (last - on_from)) * least_delay)
    return np.array(factors), np.array(delays)
