"""Finds the path of each micro-batch from stage to stage, as arrows between steps."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from lowering import schedules, trace

_FORWARD = trace.PHASES.index(schedules.Phase.FORWARD.word)
_BACKWARD = trace.PHASES.index(schedules.Phase.BACKWARD.word)


class Arrow(NamedTuple):
    """An arrow from a stage's task to the next stage's task of the same micro-batch.

    Attributes:
      source: the last step of the first task.
      target: the first step of the second task.
      micro_batch: the number of the micro-batch.
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


def find_micro_batch_arrows(steps: dict[str, np.ndarray]) -> list[Arrow]:
    """Finds all arrows of a call; `steps` are the columns of `machine.Steps`.

    Forward passes go up the stages and backward passes down. Of several backward tasks of a stage
    and micro-batch, the first sends the gradients on; the others are for weights.
    """
    arrows: list[Arrow] = []
    last_steps: dict[tuple[int, int, int], int] = {}
    done: set[tuple[int, int, int]] = set()
    for task in sorted(_group_steps_into_tasks(steps), key=lambda task: task.start):
        phase, micro_batch, stage = key = task[:3]
        if phase == _FORWARD:
            done.discard((_BACKWARD, micro_batch, stage))  # the pipeline has begun anew
        elif key in done:
            continue
        done.add(key)
        previous_stage = stage - 1 if phase == _FORWARD else stage + 1
        source = last_steps.pop((phase, micro_batch, previous_stage), None)
        if source is not None:
            arrows.append(Arrow(source, task.first, micro_batch))
        last_steps[key] = task.last
    return arrows


def _group_steps_into_tasks(steps: dict[str, np.ndarray]) -> list[_Task]:
    """Groups neighbouring steps with the same labels, where these are of a micro-batch."""
    labels = np.stack([steps[key] for key in ("phase", "micro_batch", "stage")])
    starts, ends = steps["start_cycle"], steps["start_cycle"] + steps["cycles"]
    boundaries = np.flatnonzero((np.diff(labels, axis=1) != 0).any(axis=0)) + 1
    bounds = [0, *boundaries.tolist(), labels.shape[1]]
    tasks: list[_Task] = []
    for start_index, stop_index in itertools.pairwise(bounds):
        phase, micro_batch, stage = (
            labels[:, start_index].tolist() if stop_index > start_index else (trace.NONE,) * 3
        )
        if phase in (_FORWARD, _BACKWARD) and micro_batch != trace.NONE:
            first = start_index + int(starts[start_index:stop_index].argmin())
            last = start_index + int(ends[start_index:stop_index].argmax())
            tasks.append(_Task(phase, micro_batch, stage, int(starts[first]), first, last))
    return tasks
