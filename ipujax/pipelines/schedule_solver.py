"""The integer program of a pipeline's schedule, for the solver CP-SAT of OR-Tools."""

from __future__ import annotations

import dataclasses as dc
import importlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from lowering import schedules

Phase, Task = schedules.Phase, schedules.Task
_WORKERS = 8


@dc.dataclass(frozen=True, kw_only=True)
class TaskProblem:
    """The tasks of a pipeline, and what they may use.

    Attributes:
      ipus: the IPU of each stage.
      micro_batches: how many there are.
      durations: the units of time of a task of each phase that there is; positive.
      transfer: those that a result travels to another IPU.
      memory: how many micro-batches of a stage an IPU holds at most, over all of its stages.
    """

    ipus: Sequence[int]
    micro_batches: int
    durations: Mapping[schedules.Phase, int]
    transfer: int
    memory: int

    @property
    def stages(self) -> int:
        """The number of stages."""
        return len(self.ipus)

    @property
    def stages_per_ipu(self) -> int:
        """The number of stages that each IPU has."""
        return len(self.ipus) // len(set(self.ipus))

    @property
    def round_time(self) -> int:
        """The work of an IPU on one micro-batch."""
        return self.stages_per_ipu * sum(self.durations.values())

    def delay(self, stage: int, other: int) -> int:
        """Returns how long a result travels between two stages."""
        return self.transfer if self.ipus[stage] != self.ipus[other] else 0

    def lower_bound(self) -> int:
        """Returns what every schedule takes: the most of three times.

        One micro-batch on its way there and back, the work of an IPU after the way to it, and what
        an IPU holds in its memory at least, one after the other.
        """
        forward = self.durations[Phase.FORWARD]
        arrivals = [0]
        for stage in range(1, self.stages):
            arrivals.append(arrivals[-1] + forward + self.delay(stage - 1, stage))
        first = {ipu: arrivals[self.ipus.index(ipu)] for ipu in set(self.ipus)}
        there_and_back = 2 * arrivals[-1] - forward * (self.stages - 1) + forward
        there_and_back += self.durations[Phase.BACKWARD] * self.stages
        there_and_back += self.durations.get(Phase.WEIGHTS, 0)
        work = max(first.values()) + self.micro_batches * self.round_time
        return max(there_and_back, work, *map(self._time_of_holding, first))

    def _time_of_holding(self, ipu: int) -> int:
        """Returns how long an IPU holds all micro-batches, as many at once as there is room for."""
        forward, backward = self.durations[Phase.FORWARD], self.durations[Phase.BACKWARD]
        last, held = self.stages - 1, 0
        for stage in range(self.stages):
            if self.ipus[stage] == ipu:
                to_last_one = sum(self.delay(s, s + 1) for s in range(stage, last))
                held += 2 * to_last_one + (last - stage + 1) * (forward + backward)
                held += self.durations.get(Phase.WEIGHTS, 0)
        if self.stages_per_ipu > 1:
            return -(-self.micro_batches * held // self.memory)
        return -(-self.micro_batches // self.memory) * held


@dc.dataclass(frozen=True)
class SolvedTasks:
    """The starts of tasks that the solver found, and a bound for all schedules.

    Attributes:
      starts: the start of each task; None if no schedule was found.
      lower_bound: the time that every schedule takes at least.
      round: the start and end of a round that may be repeated.
    """

    starts: Mapping[schedules.Task, int] | None
    lower_bound: int
    round: tuple[int, int] = (0, 0)


def solve_tasks(
    problem: TaskProblem, hint: Mapping[schedules.Task, int], seconds: float, repeats: int
) -> SolvedTasks:
    """Solves the problem as well as possible in some time.

    Args:
      problem: the problem.
      hint: starts of tasks to begin with, or nothing.
      seconds: the time to search.
      repeats: how often a round shall be run again, each time for the next micro-batch: a time in
        which each stage has one task of each phase. With 0 there is none.
    """
    cp_model: Any = importlib.import_module("ortools.sat.python.cp_model")
    model = _Model(cp_model, problem)
    begin, length = model.require_round(repeats) if repeats else (0, 0)
    for task, start in hint.items():
        model.model.add_hint(model.starts[task], start)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = _WORKERS
    solver.parameters.random_seed = 0
    status = solver.solve(model.model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return SolvedTasks(None, problem.lower_bound())
    return SolvedTasks(
        {task: solver.value(start) for task, start in model.starts.items()},
        max(problem.lower_bound(), round(solver.best_objective_bound)),
        (solver.value(begin), solver.value(begin + length)),
    )


class _Model:
    """The integer program: the start of each task, to minimize the end of the last one.

    Micro-batches are alike, so that each stage may take them in order in every phase.
    """

    def __init__(self, cp_model: Any, problem: TaskProblem):
        self.problem, self.model = problem, cp_model.CpModel()
        self.horizon = sum(problem.durations.values()) + 2 * problem.transfer
        self.horizon *= problem.stages * problem.micro_batches
        self.starts: dict[schedules.Task, Any] = {
            Task(stage, phase, number): self.model.new_int_var(0, self.horizon - time, "")
            for stage in range(problem.stages)
            for phase, time in problem.durations.items()
            for number in range(problem.micro_batches)
        }
        for task in self.starts:
            self._start_after_inputs(task)
        for ipu in sorted(set(problem.ipus)):
            self._share_ipu(ipu)
        self.makespan = self.model.new_int_var(problem.lower_bound(), self.horizon, "")
        last = [t for t in self.starts if t.micro_batch == problem.micro_batches - 1]
        self.model.add_max_equality(self.makespan, [self._end(task) for task in last])
        self.model.minimize(self.makespan)

    def _end(self, task: schedules.Task) -> Any:
        return self.starts[task] + self.problem.durations[task.phase]

    def _start_after_inputs(self, task: schedules.Task) -> None:
        stage, phase, number = task
        stages = self.problem.stages
        if number:
            self.model.add(self.starts[task] >= self._end(Task(stage, phase, number - 1)))
        for input_phase, other in schedules.inputs_of_task(phase, stage, stages):
            end = self._end(Task(other, input_phase, number))
            self.model.add(self.starts[task] >= end + self.problem.delay(stage, other))

    def _share_ipu(self, ipu: int) -> None:
        """Runs one task at a time, and keeps to the memory."""
        own = [task for task in self.starts if self.problem.ipus[task.stage] == ipu]
        durations = self.problem.durations
        self.model.add_no_overlap(
            self.model.new_fixed_size_interval_var(self.starts[t], durations[t.phase], "")
            for t in own
        )
        last = Phase.WEIGHTS if Phase.WEIGHTS in durations else Phase.BACKWARD
        if self.problem.memory >= self.problem.stages_per_ipu * self.problem.micro_batches:
            return
        held: list[Any] = []
        for task in (task for task in own if task.phase == Phase.FORWARD):
            size, end = (self.model.new_int_var(0, self.horizon, "") for _ in range(2))
            self.model.add(end == self._end(Task(task.stage, last, task.micro_batch)))
            held.append(self.model.new_interval_var(self.starts[task], size, end, ""))
        self.model.add_cumulative(held, [1] * len(held), self.problem.memory)

    def require_round(self, repeats: int) -> tuple[Any, Any]:
        """Requires a round, and returns its start and length; how often it comes is minimized."""
        begin = self.model.new_int_var(0, self.horizon, "")
        length = self.model.new_int_var(self.problem.round_time, self.horizon, "")
        inside: dict[tuple[int, schedules.Phase], list[Any]] = defaultdict(list)
        for task, start in self.starts.items():
            before, within, after = (self.model.new_bool_var("") for _ in range(3))
            self.model.add_exactly_one(before, within, after)
            self.model.add(self._end(task) <= begin).only_enforce_if(before)
            self.model.add(start >= begin).only_enforce_if(within)
            self.model.add(self._end(task) <= begin + length).only_enforce_if(within)
            self.model.add(start >= begin + length).only_enforce_if(after)
            inside[task.stage, task.phase].append(within)
        for choices in inside.values():
            self.model.add_exactly_one(choices)
        self.model.minimize(self.makespan + repeats * length)
        return begin, length


def order_tasks(
    solved: SolvedTasks, problem: TaskProblem, micro_batches: int
) -> dict[int, list[schedules.Run]]:
    """Returns the order of each IPU, with the round again for each further micro-batch.

    Args:
      solved: what the solver has found, with starts.
      problem: its problem.
      micro_batches: how many there shall be; those of the problem, or more with a round.
    """
    starts = solved.starts or {}
    begin, end = solved.round
    added = micro_batches - problem.micro_batches
    orders: dict[int, list[schedules.Run]] = {}
    for ipu in sorted(set(problem.ipus)):
        tasks = sorted((t for t in starts if problem.ipus[t.stage] == ipu), key=starts.__getitem__)
        before = [task for task in tasks if starts[task] < begin]
        repeated = [task for task in tasks if begin <= starts[task] < end]
        later = [
            Task(stage, phase, number + added)
            for stage, phase, number in tasks[len(before) + len(repeated) :]
        ]
        orders[ipu] = [
            schedules.one_task_per_tick(before),
            schedules.one_task_per_tick(repeated, 1 + added, 1),
            schedules.one_task_per_tick(later),
        ]
    return orders
