"""Which stages fit in memory, and quick bounds on the seconds of all cuts of an alternative."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from ipujax.planner.alternative import EXCESS, ROUNDING, Alternative
from ipujax.planner.stage_costs import Cuts, StageCosts
from ipujax.planner.stage_graph import find_least_sum, sum_path
from ipujax.planner.task_times import BACKWARD, COLUMNS, CONSTANT, FORWARD, STASH, UPDATE, WEIGHTS


class StageTables:
    """The stages that fit in memory, and the cuts whose worst stage is best.

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
        return self._pairs.fixed_bytes + resident * self._pairs.stash_bytes

    def _excess(self, stage: int) -> np.ndarray:
        """Returns the bytes that a stage has too many, float64 [starts, ends]; inf if empty."""
        limit = self._alternative.memory[self._alternative.device_mapping[stage]]
        return self._needs(stage) - min(limit, np.finfo(float).max)

    def find_balanced_cut(self) -> np.ndarray | None:
        """Returns the cut whose longest stage is shortest, of stages that fit; None without one."""
        cut, worst = self._find_cut(
            lambda stage: np.where(self.possible[stage], self._pairs.work, np.inf)
        )
        return None if np.isinf(worst) else cut

    def find_least_excessive_cut(self) -> Cuts:
        """Returns the cut whose worst stage has the fewest bytes too many, [1, stages + 1]."""
        return self._find_cut(self._excess)[0][None]

    def _find_cut(self, values_of_stage: Callable[[int], np.ndarray]) -> tuple[np.ndarray, float]:
        """Returns the cut whose largest value of a stage is least, and this value."""
        stages, segments = self._alternative.stages, len(self._alternative.stage_costs.costs)
        worst_after = np.full((stages + 1, segments + 1), np.inf)
        worst_after[stages, segments] = -np.inf
        for stage in reversed(range(stages)):
            worst_after[stage] = np.maximum(values_of_stage(stage), worst_after[stage + 1]).min(
                axis=1
            )
        positions = [0]
        for stage in range(stages):
            row = values_of_stage(stage)[positions[-1]]
            positions.append(int(np.maximum(row, worst_after[stage + 1]).argmin()))
        return np.array(positions), float(worst_after[0, 0])


def least_seconds_of_any_cut(alternative: Alternative) -> float:
    """Returns a bound on the seconds of all cuts, whatever the schedule; no schedule is built.

    Some IPU does at least its share of all work; a micro-batch passes all segments forward and
    backward; and what waits meanwhile must fit in memory. Where nothing fits the bound is the
    largest number, less than inf, as the plan that lacks least memory may be among these.
    """
    if alternative.timed.shares_ipus:
        least = max(_least_seconds_by_work(alternative), _least_seconds_by_waiting(alternative))
    else:
        least = least_seconds_of_worst_stage(alternative)
    return min(least, sys.float_info.max)


def _least_seconds_by_work(alternative: Alternative) -> float:
    """Returns a bound on the seconds of all cuts from the work of a mean IPU.

    With offloading, a stage stores nothing only if no micro-batch waits in it while another is at
    work: one at a time passes it and all stages behind it. The stages before it store.
    """
    sums, micro_batches = alternative.stage_costs.prefixes, alternative.timed.micro_batches
    forward_and_backward = sums["forward"] + sums["backward"]
    behind = forward_and_backward[-1] - forward_and_backward
    work = micro_batches * (behind[0] + sums["weight"][-1])
    update = max(sums["update"][-1] / alternative.num_ipus, alternative.tied_seconds)
    if not alternative.offload:
        return float(max(work / alternative.num_ipus, behind[0])) + update
    _, leaving = alternative.stage_costs.stash_sums
    stored = 2 * micro_batches * leaving / alternative.stage_costs.costs.host_bytes_per_second
    busy = (work + stored) / alternative.num_ipus
    return float(np.maximum(busy, micro_batches * behind).min().clip(min=behind[0])) + update


def _least_seconds_by_waiting(alternative: Alternative) -> float:
    """Returns a bound on the seconds of all cuts from the activations of IPUs; inf if none fits.

    A stage at work has its activations of a micro-batch, and the largest stage of an IPU no fewer
    than its mean one. Where nothing is recomputed or stored, the activations of a segment wait
    while all segments behind it run forward and backward. All these bytes times their seconds,
    divided by the seconds of an update, are what waits in the mean (Little's law), and each IPU has
    room for its own mean.
    """
    costs, memory = alternative.stage_costs, alternative.memory
    if np.isinf(memory).any():
        return 0.0
    starts = np.arange(len(costs.costs))
    least_work_space = costs.workspace_bytes(starts, starts + 1).min()
    fixed_bytes = alternative.parameter_sums[-1] + len(memory) * least_work_space
    room = memory.sum() * (1 + EXCESS) - fixed_bytes
    activation_sums = costs.prefixes["least activations"]
    if room < activation_sums[-1] / np.bincount(alternative.device_mapping).max():
        return np.inf
    if costs.recompute or alternative.offload or not activation_sums[-1]:
        return 0.0
    passing_sums = costs.prefixes["forward"] + costs.prefixes["backward"]
    waiting = np.diff(activation_sums) @ (passing_sums[-1] - passing_sums[:-1])
    least = alternative.timed.micro_batches * waiting / room + alternative.tied_seconds
    return float(least) * (1 - EXCESS)


def least_seconds_of_worst_stage(alternative: Alternative) -> float:
    """Returns a bound on the seconds of all cuts from the worst stage of each; inf if none fits.

    It is for alternatives with an IPU for each stage, and holds for all schedules.
    """
    bounds = _bound_first_stages(
        alternative.stage_costs,
        alternative.offload,
        alternative.timed.micro_batches,
        alternative.tied_seconds,
        tuple(alternative.memory.tolist()),
    )
    return float(bounds[-1]) * (1 - EXCESS)


def _bound_first_stages(
    costs: StageCosts,
    offload: bool,
    micro_batches: int,
    tied_seconds: float,
    memory: tuple[float, ...],
) -> np.ndarray:
    """Returns the least seconds of the worst of the first stages, by where the last of them ends.

    There is a stage for each entry of `memory`, the bytes of its IPU. float64 [segments + 1].
    """
    if not memory:
        return np.where(np.arange(len(costs.costs) + 1) == 0, 0.0, np.inf)
    cache, options = costs.bound_cache, (offload, micro_batches, tied_seconds)
    if (*options, memory) not in cache:
        if (*options, memory[-1]) not in cache:
            cache[*options, memory[-1]] = _bound_stages(costs, *options, memory[-1])
        bound_before = _bound_first_stages(costs, *options, memory[:-1])
        bound_of_stage = cache[*options, memory[-1]]
        cache[*options, memory] = np.maximum(bound_before[:, None], bound_of_stage).min(axis=0)
    return cache[*options, memory]


def _bound_stages(
    costs: StageCosts, offload: bool, micro_batches: int, tied_seconds: float, memory: float
) -> np.ndarray:
    """Returns a bound on an update that has a stage alone on an IPU, float64 [starts, ends].

    A stage waits for a first micro-batch to come, runs all its tasks, and its last backward task
    is followed by one of each stage before it. Each micro-batch waits in it while it passes all
    stages behind, and no more of them wait at once than there is memory for.
    """
    names = ("forward", "backward", "weight", "update")
    sums = [costs.prefixes[name] for name in names]
    forward_before, backward_before = sums[0][:, None], sums[1][:, None]
    passing = forward_before[-1] - forward_before + backward_before[-1] - backward_before
    forward, backward, weight, update = (row - row[:, None] for row in sums)
    stash_bytes = costs.pairs.stash_bytes
    with np.errstate(divide="ignore", invalid="ignore"):
        room = memory * (1 + EXCESS) - costs.pairs.fixed_bytes
        most_waiting = np.floor(room / stash_bytes * (1 + EXCESS))
        most_waiting = np.where(stash_bytes > 0, most_waiting, np.inf) * (room >= stash_bytes)
        turns = micro_batches / (np.minimum(most_waiting, 1.0) if offload else most_waiting)
        waiting = np.maximum(turns * (passing + weight), turns * passing + backward_before)
    seconds = micro_batches * (forward + backward)
    seconds += np.maximum(backward_before, micro_batches * weight)
    least = np.maximum(seconds, waiting)
    if offload:
        storing = 2 * micro_batches * stash_bytes / costs.costs.host_bytes_per_second
        least = np.minimum(least, seconds + storing)
    least = forward_before + least + np.maximum(update, tied_seconds)
    return np.where(most_waiting >= 1, least, np.inf)


def least_seconds_by_sums(alternative: Alternative) -> float:
    """Returns a bound on the seconds of all cuts, inf if none of them fits in memory.

    It is the work of a mean IPU, with what goes to host memory; and an IPU of mean memory needs no
    more than the others at any of its moments.
    """
    work = np.zeros((alternative.stages, COLUMNS))
    work[:, [FORWARD, BACKWARD, WEIGHTS]] = alternative.timed.micro_batches / alternative.num_ipus
    if alternative.tied_seconds:
        work[0, CONSTANT] = alternative.tied_seconds
    else:
        work[:, UPDATE] = 1.0 / alternative.num_ipus
    fullest = [paths[paths[:, :, STASH].sum(axis=1).argmax()] for paths in alternative.memory_paths]
    if fullest:
        excess = find_least_sum(sum_path(alternative, np.mean(fullest, axis=0)))
        if excess > EXCESS:
            return np.inf
    return find_least_sum(sum_path(alternative, work))
