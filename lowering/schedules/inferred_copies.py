"""The copies of a pipeline's stages, found in the orders that list their tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lowering.schedules.layout import Layout
from lowering.schedules.schedule_errors import ScheduleError
from lowering.schedules.task import PHASES_BETWEEN, Groups, Kind, Phase, Task


def infer_copies(
    name: str,
    orders: Mapping[int, Sequence[Task]],
    ipus: Groups,
    micro_batches: int,
    between: Collection[Kind],
) -> Layout:
    """Finds the copy of each micro-batch: its stages are where the orders list its tasks.

    Args:
      name: the name of the schedule, for messages.
      orders: the tasks of each IPU; no order has one twice.
      ipus: the IPUs of each stage in the first copy.
      micro_batches: how many there are.
      between: the kinds of tasks R, O and L that there are.

    Raises:
      ScheduleError: a task that is nowhere, or one that is elsewhere than the forward task of its
        stage and micro-batch; or the first copy has no micro-batch.
    """
    stages = len(ipus)
    ipus_of_tasks: dict[Task, tuple[int, ...]] = {}
    for ipu in sorted(orders):
        for task in orders[ipu]:
            ipus_of_tasks[task] = (*ipus_of_tasks.get(task, ()), ipu)
    phases = {task.phase for task in ipus_of_tasks}.difference(PHASES_BETWEEN)
    of_all = [(phase, stage) for phase in Phase if phase in phases for stage in range(stages)]
    kinds = [*of_all, *sorted(between)]
    numbers: dict[Groups, int] = {tuple(tuple(sorted(group)) for group in ipus): 0}
    pattern: list[int] = []
    for number in range(micro_batches):
        placing = [ipus_of_tasks.get(Task(stage, Phase.FORWARD, number)) for stage in range(stages)]
        for phase, stage in kinds:
            task = Task(stage, phase, number)
            _check_task_place(name, ipus_of_tasks, task, placing[stage], ipus[stage])
        copy_ipus = tuple(group or () for group in placing)
        pattern.append(numbers.setdefault(copy_ipus, len(numbers)))
    if 0 not in pattern:
        raise ScheduleError(
            f"{name}: no micro-batch has its stages on the IPUs {ipus}",
            fix="give as `ipus` the IPUs of one of the copies",
        )
    copies = (ipus, *[*numbers][1:])
    return Layout(
        micro_batches=micro_batches,
        copies=copies,
        copy_pattern=_shortest_period(pattern),
    )


def _check_task_place(
    name: str,
    ipus_of_tasks: Mapping[Task, tuple[int, ...]],
    task: Task,
    group: tuple[int, ...] | None,
    first_copy: tuple[int, ...],
) -> None:
    """Raises if a task is nowhere, or not where its stage's forward task is."""
    if task not in ipus_of_tasks:
        raise ScheduleError(
            f"{name}: {task} is missing in the orders of all IPUs", fix="list every task once"
        )
    if ipus_of_tasks[task] != group:
        forward = task._replace(phase=Phase.FORWARD)
        elsewhere = [(t, ipu) for t in (forward, task) for ipu in ipus_of_tasks.get(t, ())]
        foreign, ipu = next((pair for pair in elsewhere if pair[1] not in first_copy), elsewhere[0])
        raise ScheduleError(
            f"{name}: {foreign} in the order of IPU {ipu} is no task of this IPU: {task} is in the "
            f"orders of the IPUs {list(ipus_of_tasks[task])}, {forward} in those of "
            f"{list(group or ())}",
            fix="list all tasks of a stage and micro-batch in the orders of the same IPUs",
        )


def _shortest_period(pattern: Sequence[int]) -> tuple[int, ...]:
    """Returns the shortest beginning that the whole pattern repeats."""
    # The length of the longest end that is a beginning too, of each part (Knuth, Morris, Pratt).
    longest = [0] * len(pattern)
    for position in range(1, len(pattern)):
        length = longest[position - 1]
        while length and pattern[position] != pattern[length]:
            length = longest[length - 1]
        longest[position] = length + (pattern[position] == pattern[length])
    return tuple(pattern[: len(pattern) - longest[-1]])
