"""Schedules of a problem that are known without a search."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ipujax.pipelines.schedule_solver import TaskProblem
from lowering import schedules

Phase, Task = schedules.Phase, schedules.Task


def find_best_known(
    problem: TaskProblem, deadline: float, bound: int = 0
) -> schedules.Schedule | None:
    """Finds the fastest registered schedule that has the problem's tasks and keeps to its memory.

    Args:
      problem: the problem.
      deadline: a time of `time.monotonic`: later, nothing more is tried once one is found.
      bound: what no schedule is faster than: nothing is tried after one that reaches it.
    """
    best: schedules.Schedule | None = None
    shortest = 0
    for schedule in _build_registered(problem):
        makespan = compute_makespan(schedule, problem)
        if best is None or makespan < shortest:
            run = schedules.simulate(schedule)
            if max(run.in_flight_per_ipu) <= problem.memory:
                best, shortest = schedule, makespan
        if best is not None and (shortest <= bound or time.monotonic() > deadline):
            break
    return best


def compute_makespan(schedule: schedules.Schedule, problem: TaskProblem) -> int:
    """Computes the makespan in units of time."""
    run = schedules.simulate(schedule, problem.durations, transfer=problem.transfer)
    return round(run.makespan)


def _build_registered(problem: TaskProblem) -> Iterator[schedules.Schedule]:
    """Yields the registered schedules that have the problem's tasks."""
    splits = Phase.WEIGHTS in problem.durations
    for registered in schedules.list_schedules():
        if registered.splits_backward != splits or not registered.is_plain:
            continue
        try:
            schedule = schedules.build(
                registered.name,
                stages=problem.stages,
                micro_batches=problem.micro_batches,
                training=True,
                ipus=problem.ipus,
            )
        except schedules.ScheduleError:
            continue
        if schedule.is_plain and schedule.splits_backward == splits:
            yield schedule


def build_with_few_in_flight(problem: TaskProblem) -> schedules.Schedule:
    """Builds 1F1B that starts with no more micro-batches than there is memory for.

    Where IPUs have several stages, one micro-batch runs after the other. Gradients of weights run
    right after those of inputs, where they are tasks of their own.
    """
    backward = [phase for phase in (Phase.BACKWARD, Phase.WEIGHTS) if phase in problem.durations]
    orders: dict[int, list[schedules.Task]] = {ipu: [] for ipu in problem.ipus}
    if problem.stages_per_ipu > 1:
        for number in range(problem.micro_batches):
            for stage, ipu in enumerate(problem.ipus):
                orders[ipu].append(Task(stage, Phase.FORWARD, number))
            for stage, ipu in reversed([*enumerate(problem.ipus)]):
                orders[ipu] += [Task(stage, phase, number) for phase in backward]
    else:
        for stage, ipu in enumerate(problem.ipus):
            ahead = min(problem.stages - stage, problem.memory)
            for number in range(problem.micro_batches + ahead):
                if number >= ahead:
                    orders[ipu] += [Task(stage, phase, number - ahead) for phase in backward]
                if number < problem.micro_batches:
                    orders[ipu].append(Task(stage, Phase.FORWARD, number))
    return schedules.from_orders(
        "few-in-flight",
        orders,
        stages=problem.stages,
        micro_batches=problem.micro_batches,
        ipus=problem.ipus,
    )
