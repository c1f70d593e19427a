"""Places every task in the earliest tick that the order of its IPU and its inputs allow.

All IPUs advance together, tick by tick. Once all of them are at the positions of some ticks ago,
each as many micro-batches further on, they will repeat these ticks for as long as their orders
repeat and no IPU that stood still meanwhile is affected: so many rounds are one run of the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, NoReturn, TypeAlias

from lowering.schedules.grid import draw_grid
from lowering.schedules.layout import Layout, Row
from lowering.schedules.schedule_errors import ScheduleError
from lowering.schedules.task import Phase, Task
from lowering.schedules.task_progress import Progress
from lowering.schedules.ticks import Run, Tick, Ticks

# The order in which the tasks of a tick are dispatched: tasks that free memory come first.
_DISPATCH_ORDER = "BWOFLR"
_SHOWN = 8  # ticks before a deadlock, and IPUs stuck in it, that the message shows

_Positions: TypeAlias = tuple[tuple[int, int, bool], ...]
"""For each IPU, the run of its order that it is in, the position in a round, and if it waits."""


def place_tasks_earliest(name: str, orders: Mapping[int, Ticks], layout: Layout) -> Ticks:
    """Places tasks in the earliest ticks that their orders and inputs allow.

    Args:
      name: the name of the schedule, for messages.
      orders: the order of each IPU, one task in a tick.
      layout: where tasks run, and what they wait for.

    Raises:
      ScheduleError: orders in which IPUs wait for one another.
    """
    return _TaskPlacer(name, orders, layout).build_ticks()


class _OrderCursor:
    """The position of an IPU in its order.

    Attributes:
      number: the index of the run that it is in.
      run: this run; one without ticks at the end.
      round: the round of this run.
      position: the position in the round.
      head: the next task; None at the end.
    """

    def __init__(self, order: Ticks):
        self.runs = (*order.runs, Run(()))
        self.number = self.round = self.position = 0
        self._load_round()

    def _load_round(self) -> None:
        """Loads the tasks of the round."""
        self.run = self.runs[self.number]
        self.tasks = self.run.ticks_of_round(self.round)
        self.head = self.tasks[self.position][0] if self.tasks else None

    def advance_to_next_task(self) -> None:
        """Moves to the next task."""
        self.position += 1
        if self.position < len(self.tasks):
            self.head = self.tasks[self.position][0]
            return
        self.position = 0
        self.round += 1
        if self.round == self.run.times:
            self.number, self.round = self.number + 1, 0
        self._load_round()

    def skip_cursor_rounds(self, rounds: int) -> None:
        """Moves to the same position of a later round of the same run."""
        self.round += rounds
        self._load_round()


class _Snapshot(NamedTuple):
    """The progress of all IPUs and tasks after `tick` ticks; `rounds` is by IPU."""

    tick: int
    rounds: tuple[int, ...]
    done: dict[Row, int]


class _TaskPlacer:
    def __init__(self, name: str, orders: Mapping[int, Ticks], layout: Layout):
        self.name, self.layout = name, layout
        self.cursors = {ipu: _OrderCursor(order) for ipu, order in orders.items()}
        kinds = {
            (task.phase, task.stage)
            for order in orders.values()
            for run in order.runs
            for (task,) in run.ticks
        }
        self.done = Progress(layout.list_rows(sorted(kinds)))
        self.waiting: dict[Task, list[int]] = {}  # the IPUs that wait for each task
        self.runs: list[Run] = []
        self.recent: list[Tick] = []  # after those in `runs`
        self.before: dict[_Positions, _Snapshot] = {}  # since the last tick that nothing repeats

    def build_ticks(self) -> Ticks:
        awake = set(self.cursors)
        while tick := self._find_ready_tasks(awake):
            self.recent.append(tick)
            awake = self._finish_tick(tick)
            self._skip_repeated_rounds(awake)
        if any(cursor.head for cursor in self.cursors.values()):
            self._raise_deadlock()
        return Ticks([*self.runs, Run(tuple(self.recent))])

    def _find_ready_tasks(self, awake: set[int]) -> Tick:
        """Returns the tasks that can run now; records IPUs that wait for others."""
        tasks: set[Task] = set()
        for ipu in awake:
            task = self.cursors[ipu].head
            if task is None or task in tasks:
                continue
            missing = next(self._missing_inputs(task), None)
            if missing is not None:
                self.waiting.setdefault(missing, []).append(ipu)
            # The last of several IPUs to come to the task runs it for all of them.
            elif all(self.cursors[i].head == task for i in self.layout.ipus_of(task)):
                tasks.add(task)
        return tuple(sorted(tasks, key=dispatch_key))

    def _missing_inputs(self, task: Task) -> Iterator[Task]:
        for needed in self.layout.needs(task):
            if not self.done.is_recorded(*self.layout.row_of(needed)):
                yield needed

    def _finish_tick(self, tick: Tick) -> set[int]:
        """Counts the tasks of a tick; returns the IPUs that may run something in the next."""
        awake: set[int] = set()
        for task in tick:
            self.done.record_task(*self.layout.row_of(task))
            for ipu in self.layout.ipus_of(task):
                self.cursors[ipu].advance_to_next_task()
                awake.add(ipu)
            awake.update(self.waiting.pop(task, ()))
        return {ipu for ipu in awake if self.cursors[ipu].head}

    def _skip_repeated_rounds(self, awake: set[int]) -> None:
        """Runs at once the rounds that all IPUs are about to repeat."""
        if not all(self.cursors[ipu].run.times > 1 for ipu in awake):
            self.before.clear()
            return
        done = self.done.counts_if_run_in_order()
        if done is None:
            return
        cursors = self.cursors.values()
        current = _Snapshot(len(self.recent), tuple(cursor.round for cursor in cursors), done)
        positions = tuple((c.number, c.position, ipu in awake) for ipu, c in self.cursors.items())
        earlier = self.before.get(positions)
        self.before[positions] = current
        moving = self._rounds_advanced(earlier, current) if earlier else {}
        if earlier is None or not awake <= moving.keys():
            return
        step = self._count_micro_batches_advanced(earlier, current, moving)
        times = self._count_repeats(earlier, current, moving, step) if step > 0 else 0
        if not times:
            return
        self.runs.append(Run(tuple(self.recent[: earlier.tick])))
        self.runs.append(Run(tuple(self.recent[earlier.tick :]), 1 + times, step))
        self.recent.clear()
        self.before.clear()
        self.done.record_tasks_in_order(
            {row: times * (n - earlier.done[row]) for row, n in done.items()}
        )
        for ipu, rounds in moving.items():
            self.cursors[ipu].skip_cursor_rounds(times * rounds)
        self._shift_waiting(moving, times * step)

    def _rounds_advanced(self, earlier: _Snapshot, current: _Snapshot) -> dict[int, int]:
        """Returns the IPUs that have advanced since, and by how many rounds."""
        differences = [
            round_now - round_then
            for round_then, round_now in zip(earlier.rounds, current.rounds, strict=True)
        ]
        return {
            ipu: rounds for ipu, rounds in zip(self.cursors, differences, strict=True) if rounds
        }

    def _count_micro_batches_advanced(
        self, earlier: _Snapshot, current: _Snapshot, moving: Mapping[int, int]
    ) -> int:
        """Returns how many micro-batches everything has advanced; 0 if not all by as many."""
        lanes = self.layout.lanes
        steps = {lanes * (n - earlier.done[row]) for row, n in current.done.items()} - {0}
        steps.update(rounds * self.cursors[ipu].run.step for ipu, rounds in moving.items())
        return max(steps) if len(steps) == 1 else 0

    def _count_repeats(
        self, earlier: _Snapshot, current: _Snapshot, moving: Mapping[int, int], step: int
    ) -> int:
        """Returns how often the same round will come again."""
        moving_cursors = [(self.cursors[ipu], rounds) for ipu, rounds in moving.items()]
        times = min(
            (cursor.run.times - 1 - cursor.round) // rounds for cursor, rounds in moving_cursors
        )
        if not times:
            return 0
        unmoved = {row for row, n in current.done.items() if n == earlier.done[row]}
        rows_per_step = step // self.layout.lanes
        # Until results that others made earlier are used up,
        for task in itertools.chain(*self.recent[earlier.tick :]):
            for row, number in map(self.layout.row_of, self.layout.needs(task)):
                if row in unmoved:
                    times = min(times, (current.done[row] - 1 - number) // rows_per_step)
        # and until others get the results that they wait for.
        for task, ipus in self.waiting.items():
            row, number = self.layout.row_of(task)
            if row not in unmoved and not moving.keys() >= set(ipus):
                times = min(times, (number - current.done[row]) // rows_per_step)
        return times

    def _shift_waiting(self, moving: Collection[int], ahead: int) -> None:
        """Shifts the tasks that advanced IPUs wait for by as many micro-batches."""
        waiting, self.waiting = self.waiting, {}
        for (stage, phase, number), ipus in waiting.items():
            for ipu in ipus:
                later = Task(stage, phase, number + (ahead if ipu in moving else 0))
                self.waiting.setdefault(later, []).append(ipu)

    def _raise_deadlock(self) -> NoReturn:
        """Raises the error of IPUs that wait for one another, with the ticks until then."""
        ticks = [*Ticks([*self.runs, Run(tuple(self.recent))])]
        end = len(ticks)
        heads = {ipu: c.head for ipu, c in self.cursors.items()}
        stuck = {ipu: task for ipu, task in heads.items() if task is not None}
        waits: list[str] = []
        for ipu, task in stuck.items():
            missing = list(map(str, self._missing_inputs(task)))
            partners = [f"IPU {i}" for i in self.layout.ipus_of(task) if stuck.get(i) != task]
            waits.append(f"{task} on IPU {ipu} waits for {' and '.join(missing or partners)}")
        hidden = len(waits) - _SHOWN
        listed_waits = "; ".join(waits[:_SHOWN]) + (f"; and {hidden} more" if hidden > 0 else "")
        waiting = [(end, task) for task in dict.fromkeys(stuck.values())]
        ticks.append(tuple(task for _, task in waiting))
        raise ScheduleError(
            f"{self.name}: deadlock after {end} ticks: {listed_waits}",
            grid=draw_grid(self.layout, ticks, max(0, end - _SHOWN), end + 1, waiting),
            fix="put what is waited for (`>` marks who waits) earlier in the order of its IPU",
        )


def dispatch_key(task: Task) -> tuple[int, int, int]:
    """Returns the sort key of a task in its tick."""
    forward = task.phase == Phase.FORWARD
    return (
        _DISPATCH_ORDER.index(task.phase),
        -task.stage if forward else task.stage,
        task.micro_batch,
    )
