"""The way of each micro-batch from stage to stage, as arrows between steps."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from lowering import schedules, trace

_FORWARD = trace.PHASES.index(schedules.Phase.FORWARD.word)
_BACKWARD = trace.PHASES.index(schedules.Phase.BACKWARD.word)


class Arrow(NamedTuple):
    """From a stage's task to the next stage's of the same micro-batch.

    Attributes:
      source: the last step of the one.
      target: the first step of the other.
      micro_batch: which one.
    """

    source: int
    target: int
    micro_batch: int


class _Task(NamedTuple):
    phase: int
    micro_batch: int
    stage: int
    start: int
    first: int
    last: int


def arrows(steps: dict[str, np.ndarray]) -> list[Arrow]:
    """All arrows of a call; `steps` are the columns of `machine.Steps`.

    Forward passes go up the stages and backward passes down. Of several backward tasks of a stage
    and micro-batch, the first sends the gradients on; the others are for weights.
    """
    drawn: list[Arrow] = []
    waiting: dict[tuple[int, int, int], int] = {}
    done: set[tuple[int, int, int]] = set()
    for task in sorted(_tasks(steps), key=lambda task: task.start):
        phase, micro_batch, stage = key = task[:3]
        if phase == _FORWARD:
            done.discard((_BACKWARD, micro_batch, stage))  # the pipeline has begun anew
        elif key in done:
            continue
        done.add(key)
        before = stage - 1 if phase == _FORWARD else stage + 1
        source = waiting.pop((phase, micro_batch, before), None)
        if source is not None:
            drawn.append(Arrow(source, task.first, micro_batch))
        waiting[key] = task.last
    return drawn


def _tasks(steps: dict[str, np.ndarray]) -> list[_Task]:
    """Neighbouring steps with the same labels, where these are of a micro-batch."""
    labels = np.stack([steps[key] for key in ("phase", "micro_batch", "stage")])
    starts, ends = steps["start_cycle"], steps["start_cycle"] + steps["cycles"]
    cuts = np.flatnonzero((np.diff(labels, axis=1) != 0).any(axis=0)) + 1
    bounds = [0, *cuts.tolist(), labels.shape[1]]
    tasks: list[_Task] = []
    for low, high in itertools.pairwise(bounds):
        phase, micro_batch, stage = labels[:, low].tolist() if high > low else (trace.NONE,) * 3
        if phase in (_FORWARD, _BACKWARD) and micro_batch != trace.NONE:
            first = low + int(starts[low:high].argmin())
            last = low + int(ends[low:high].argmax())
            tasks.append(_Task(phase, micro_batch, stage, int(starts[first]), first, last))
    return tasks
