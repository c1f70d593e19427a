"""The order in which an IPU of DualPipe runs its tasks (DeepSeek-V3, arXiv 2412.19437).

Micro-batches come to an IPU from both ends of a pipeline. Those from the end that is nearer come
first, and their gradients last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeAlias

from lowering.schedules.task import Phase, Task
from lowering.schedules.ticks import Run, one_task_per_tick

Step: TypeAlias = tuple[Phase, int]
"""What an IPU runs next: a phase of the next micro-batch that comes from one end."""

NEAR, FAR = 0, 1

_FORWARD_NEAR, _FORWARD_FAR = (Phase.FORWARD, NEAR), (Phase.FORWARD, FAR)
_BACKWARD_NEAR = [(Phase.BACKWARD, NEAR), (Phase.WEIGHTS, NEAR)]
_BACKWARD_FAR = [(Phase.BACKWARD, FAR), (Phase.WEIGHTS, FAR)]


def build_order(
    position: int,
    num_positions: int,
    *,
    near: int,
    far: int,
    task_of: Callable[[Phase, int, int], Task],
    step: int,
) -> list[Run]:
    """Builds the order of the IPU at one position of the pipeline.

    Args:
      position: how many IPUs are before it.
      num_positions: how many IPUs there are, an even number.
      near: the micro-batches from the end that is nearer.
      far: those from the other end, at most one more or less.
      task_of: gives the task of a phase, an end (`NEAR` or `FAR`) and the number of a micro-batch
        among those from there.
      step: the micro-batches from one to the next one from the same end.
    """
    # Pairs of micro-batches from both ends that run forward here before any backward task.
    early_pairs = min(position, num_positions - 1 - position) + 1
    ipus_to_middle = num_positions // 2 - early_pairs
    limits, counts = (near, far), Counter[Step]()

    def take_tasks(steps: Iterable[Step]) -> list[Task]:
        tasks: list[Task] = []
        for phase, end in steps:
            if counts[phase, end] < limits[end]:
                tasks.append(task_of(phase, end, counts[phase, end]))
                counts[phase, end] += 1
        return tasks

    first = [_FORWARD_NEAR] * (2 * ipus_to_middle) + [_FORWARD_NEAR, _FORWARD_FAR] * early_pairs
    first += [*_BACKWARD_FAR, _FORWARD_FAR] * ipus_to_middle
    steady = [_FORWARD_NEAR, *_BACKWARD_FAR, _FORWARD_FAR, *_BACKWARD_NEAR]
    rounds = max(0, min(near, far) - (early_pairs + 2 * ipus_to_middle))
    last = (
        steady * abs(near - far) + [*_BACKWARD_FAR, _FORWARD_FAR, *_BACKWARD_NEAR] * ipus_to_middle
    )
    runs = [one_task_per_tick(take_tasks(first))]
    if rounds:
        runs.append(one_task_per_tick(take_tasks(steady), rounds, step))
        counts.update(dict.fromkeys(steady, rounds - 1))
    return [
        *runs,
        one_task_per_tick(take_tasks(last + _list_last_steps(early_pairs, ipus_to_middle))),
    ]


def _list_last_steps(early_pairs: int, ipus_to_middle: int) -> list[Step]:
    """Lists the steps after the last forward pass: half of the weights' gradients fill gaps."""
    ends = [FAR, NEAR] * early_pairs + [NEAR] * ipus_to_middle
    at_once, postponed = ends[:early_pairs], [(Phase.WEIGHTS, end) for end in ends[early_pairs:]]
    steps = [(phase, end) for end in at_once for phase in (Phase.BACKWARD, Phase.WEIGHTS)]
    steps += [(Phase.BACKWARD, end) for end in ends[early_pairs : 2 * early_pairs]]
    for weights in postponed[:ipus_to_middle]:
        steps += [weights, (Phase.BACKWARD, NEAR)]
    return steps + postponed[ipus_to_middle:]
