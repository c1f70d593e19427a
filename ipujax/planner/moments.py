"""The moments when an IPU may be fullest, and how many micro-batches wait on it then."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence

import numpy as np

from lowering import schedules


@dc.dataclass(frozen=True, eq=False)
class Moments:
    """Moments of an IPU, one of which is its fullest whatever bytes its stages keep.

    Attributes:
      stages: the stages on the IPU.
      waiting: int64 [moments, stages]: the micro-batches of each stage that wait or are at work.
      working: int64 [moments, stages]: whether each stage runs a task, or has run a backward task
        and not yet all tasks that make gradients of its weights.
    """

    stages: tuple[int, ...]
    waiting: np.ndarray
    working: np.ndarray

    def keep_fullest(self) -> Moments:
        """Returns the moments without those at which no stage has more than at another one."""
        counts = np.unique(np.concatenate([self.waiting, self.working], axis=1), axis=0)
        fullest = np.zeros((0, counts.shape[1]), int)
        for row in counts[counts.sum(axis=1).argsort(kind="stable")[::-1]]:
            if not (row <= fullest).all(axis=1).any():
                fullest = np.concatenate([fullest, row[None]])
        waiting, working = np.split(fullest, 2, axis=1)
        return Moments(self.stages, waiting, working)


def list_moments(order: Sequence[tuple[int, schedules.Phase]]) -> Moments:
    """Lists the moments when an IPU may be fullest: those when it begins a task.

    Args:
      order: the stage and phase of each of its tasks, in the order in which they run.
    """
    phases = schedules.Phase
    stages = tuple(sorted({stage for stage, _ in order}))
    last = max((phase for _, phase in order), key=[*phases].index)
    waiting, pending = dict.fromkeys(stages, 0), dict.fromkeys(stages, 0)
    rows: set[tuple[int, ...]] = set()
    for stage, phase in order:
        waiting[stage] += phase == phases.FORWARD
        pending[stage] += phase == phases.BACKWARD
        working = [s == stage or pending[s] > 0 for s in stages]
        rows.add((*waiting.values(), *map(int, working)))
        waiting[stage] -= phase == last
        pending[stage] -= phase == last
    waits, works = np.split(np.array(sorted(rows), int), 2, axis=1)
    return Moments(stages, waits, works).keep_fullest()
