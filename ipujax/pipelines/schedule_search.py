"""The shortest schedule of a pipeline, found and proven by an integer program."""

from __future__ import annotations

import dataclasses as dc
import math
import time
from fractions import Fraction
from typing import Any

from ipujax.ground import Checks, api_boundary, require_package
from ipujax.pipelines.known_schedules import (
    build_with_few_in_flight,
    compute_makespan,
    find_best_known,
)
from ipujax.pipelines.schedule_solver import TaskProblem, order_tasks, solve_tasks
from lowering import schedules

check = Checks(schedules.ScheduleError, schedules.ScheduleError)
_MOST_UNITS = 2**40  # of a makespan: what the solver adds up exactly
_MOST_TASKS = 600  # that are solved at once
_POSITIVE = "give a positive number of seconds"
_PLACEMENTS = ("straight", "v")


@dc.dataclass(frozen=True, kw_only=True)
class FoundSchedule:
    """A schedule that a search found.

    Attributes:
      schedule: the schedule.
      makespan: the time from its first task to its last one, as `simulate` computes it.
      lower_bound: a time that no schedule of the same tasks and memory is shorter than.
      proven: whether no schedule of the same tasks and memory is shorter than this one.
    """

    schedule: schedules.Schedule
    makespan: float
    lower_bound: float
    proven: bool


@check.guard
@api_boundary
def search(
    stages: int,
    micro_batches: int,
    *,
    forward: float = 1.0,
    backward: float = 1.0,
    weight: float = 1.0,
    transfer: float = 0.0,
    memory: float | None = None,
    placement: str = "straight",
    budget_seconds: float = 30.0,
) -> FoundSchedule:
    """Searches for the schedule with the shortest makespan, with the extra `plan`.

    It starts from the best registered schedule that fits. What it has found when its time is over
    is given, with the bound that it has proven by then.

    Args:
      stages: the forward stages.
      micro_batches: how many there are.
      forward: the seconds of a forward task of a stage.
      backward: those of the gradient of its inputs; of all gradients, if `weight` is 0.
      weight: those of the gradient of its weights; with 0 the backward pass is not split.
      transfer: the seconds that results and gradients travel to another IPU, which may work
        meanwhile.
      memory: how many micro-batches an IPU may hold at once, from the start of the forward task to
        the end of the last gradient. Of an IPU with two stages, each counts half. None for any.
      placement: "straight" puts stage s on IPU s; "v" puts it on IPU s and, in the second half, on
        IPU `stages` - 1 - s: the IPU of the first stage has the last one, too.
      budget_seconds: how long to search.

    Returns:
      The schedule, its `makespan`, the `lower_bound` of all, and whether it is `proven`.

    Raises:
      ScheduleError: an argument that is wrong, or memory in which no micro-batch has room.
      MissingExtraError: (an `ImportError`) the package of the extra `plan` is missing.
    """
    budget = check.require_number(budget_seconds, "budget_seconds", "give a number of seconds")
    if not budget > 0:
        raise check.value_error(
            f"budget_seconds is {budget:g}: nothing is found in no time", "give a positive number"
        )
    deadline = time.monotonic() + budget
    problem, units = _read_problem(
        _read_placement(stages, micro_batches, placement),
        micro_batches,
        {
            "forward": forward,
            "backward": backward,
            "weight": weight,
            "transfer": transfer,
        },
        memory,
    )
    require_package("ortools", "plan", "the search for a schedule needs it")
    found, bound = _solve(problem, deadline)
    makespan = schedules.simulate(
        found, {phase: time / units for phase, time in problem.durations.items()}, transfer=transfer
    ).makespan
    best = compute_makespan(found, problem)
    return FoundSchedule(
        schedule=found,
        makespan=makespan,
        lower_bound=makespan if bound >= best else bound / units,
        proven=bound >= best,
    )


def _solve(problem: TaskProblem, deadline: float) -> tuple[schedules.Schedule, int]:
    """Returns the best schedule that is found in time, and what every schedule takes."""
    bound = problem.lower_bound()
    best = find_best_known(problem, deadline, bound)
    if best is not None and compute_makespan(best, problem) <= bound:
        return best, bound
    part = dc.replace(problem, micro_batches=_count_solved(problem))
    repeats = problem.micro_batches - part.micro_batches
    hint = find_best_known(part, deadline) if repeats else best
    seconds = max(deadline - time.monotonic(), 0.01)
    solved = solve_tasks(part, _starts_of(hint, part), seconds, repeats)
    if not repeats:
        bound = max(bound, solved.lower_bound)
    if solved.starts is not None:
        found = schedules.schedule_orders(
            "searched",
            order_tasks(solved, part, problem.micro_batches),
            tuple((ipu,) for ipu in problem.ipus),
            problem.micro_batches,
            True,
        )
        if best is None or compute_makespan(found, problem) < compute_makespan(best, problem):
            best = found
    return best or build_with_few_in_flight(problem), bound


def _count_solved(problem: TaskProblem) -> int:
    """Returns how many micro-batches are solved: all, or enough for a round that is repeated."""
    tasks = problem.stages * len(problem.durations) * problem.micro_batches
    enough = 2 * len(set(problem.ipus)) + 2
    return problem.micro_batches if tasks <= _MOST_TASKS else min(enough, problem.micro_batches)


def _starts_of(
    schedule: schedules.Schedule | None, problem: TaskProblem
) -> dict[schedules.Task, int]:
    """Returns the start of each task; nothing without a schedule."""
    if schedule is None:
        return {}
    durations = {
        (phase, stage): time
        for phase, time in problem.durations.items()
        for stage in range(problem.stages)
    }
    delays = [problem.transfer] * (problem.stages - 1)
    times = schedules.times_of_tasks(schedule, durations, delays)
    return {task: start for task, start, _ in times}


def _read_placement(stages: Any, micro_batches: Any, placement: Any) -> tuple[int, ...]:
    """Returns the IPU of each stage."""
    check.require_integer(stages, "stages", 1)
    check.require_integer(micro_batches, "micro_batches", 1)
    schedules.check_pipeline_sizes(stages, micro_batches, True)
    if check.require_one_of(placement, _PLACEMENTS, "placement") == "straight":
        return tuple(range(stages))
    if stages % 2:
        raise check.value_error(
            f"{stages} stages in a v, two on each IPU", "use an even number of stages"
        )
    return tuple(min(stage, stages - 1 - stage) for stage in range(stages))


def _read_problem(
    ipus: tuple[int, ...], micro_batches: int, seconds: dict[str, Any], memory: Any
) -> tuple[TaskProblem, int]:
    """Returns the problem in units of time, and how many units a second has."""
    exact: dict[str, Fraction] = {}
    for name, value in seconds.items():
        number = check.require_number(value, name, "give a number of seconds")
        if not 0 <= number < math.inf or (number == 0 and name in ("forward", "backward")):
            lacking = "give seconds, at least 0" if name in ("weight", "transfer") else _POSITIVE
            raise check.value_error(f"{name} is {number:g}", lacking)
        exact[name] = Fraction(str(number))
    units = math.lcm(*(value.denominator for value in exact.values()))
    times = {name: int(value * units) for name, value in exact.items()}
    if sum(times.values()) * len(ipus) * micro_batches > _MOST_UNITS:
        raise check.value_error(
            f"the seconds {seconds} have too many digits to be added up exactly",
            "round them to fewer digits",
        )
    phases = schedules.Phase.FORWARD, schedules.Phase.BACKWARD, schedules.Phase.WEIGHTS
    durations = {
        phase: times[name]
        for phase, name in zip(phases, ("forward", "backward", "weight"), strict=True)
        if times[name]
    }
    per_ipu = len(ipus) // len(set(ipus))
    limit = per_ipu * micro_batches
    if memory is not None:
        held = check.require_number(memory, "memory", "give a number of micro-batches")
        if not held >= 1:
            raise check.value_error(
                f"memory is {held:g}: no micro-batch has room", "give at least 1, or None"
            )
        limit = int(min(limit, held * per_ipu))
    problem = TaskProblem(
        ipus=ipus,
        micro_batches=micro_batches,
        durations=durations,
        transfer=times["transfer"],
        memory=limit,
    )
    return problem, units
