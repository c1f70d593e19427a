"""The end of a schedule if every task starts as soon as its IPUs and its inputs are ready.

A million rounds are not run one by one. After some rounds, each time grows by the same amount from
one round to the next: times are lines, `time + growth * rounds to come`. A task starts at the
latest of some times, and the latest of several lines stays the same until a line that grows faster
has caught up: up to there the rounds are skipped, exactly, since times are ints.
"""

from __future__ import annotations

import dataclasses as dc
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from lowering.ground import InternalError
from lowering.schedules.layout import Row
from lowering.schedules.schedule import Schedule
from lowering.schedules.task import Kind, Task
from lowering.schedules.ticks import Run, Tick, runs_of_ticks

_TimeLine: TypeAlias = tuple[int, int]
"""A time, and its growth per round: 0 where rounds are run one by one."""

_Edge: TypeAlias = tuple[Row, Row]
"""A kind of task, and one on another IPU that waits for its results."""

_Awaited: TypeAlias = tuple[_Edge, int]
"""An edge, and the micro-batch of a result that is waited for."""

_ClockKey: TypeAlias = tuple[_Edge | None, int]
"""An IPU (None, IPU), or what is waited for."""

# Rounds are compared with the ones up to so many rounds before; missing a longer cycle costs time.
_LONGEST_CYCLE = 8
_FEW = 1024  # the most times of a round that are compared with others


def compute_makespan(
    schedule: Schedule, durations: Mapping[Kind, int], delays: Sequence[int] = ()
) -> int:
    """Computes the end of the last task, in the unit of the durations.

    Args:
      schedule: one that `simulate` accepts.
      durations: the duration of a task of each kind.
      delays: for each stage but the last, how long results travel between it and the next one if
        that is on other IPUs; () for no time.
    """
    clocks = _ClockState(schedule, durations, delays)
    for run in runs_of_ticks(schedule.ticks):
        clocks.run_all_rounds(run)
    return max(clocks.free.values())[0]


@dc.dataclass(frozen=True, slots=True)
class _ResultRow:
    """The end times of many tasks of one kind, as one line.

    Attributes:
      first: the first micro-batch.
      step: the difference from one micro-batch to the next.
      times: how many there are.
      line: the line of their times.
    """

    first: int
    step: int
    times: int
    line: _TimeLine


class _GrowingTimes:
    """A rule for new times, and how long it holds while all times grow.

    Args:
      stored_results: times of results that one run has made for another.
      step: micro-batches from one round to the next; 0 where rounds are run one by one.

    Attributes:
      turns: how many rounds all lines go on as they do; None for ever.
      made: times of results for other runs.
    """

    def __init__(self, stored_results: dict[_Awaited, int], step: int = 0):
        self.kept, self.step = stored_results, step
        self.turns: int | None = None
        self.made: list[tuple[_Awaited, _TimeLine]] = []

    def _limit_repeats(self, turns: int) -> None:
        self.turns = turns if self.turns is None else min(self.turns, turns)

    def end_of_task_after(self, lines: Sequence[_TimeLine], duration: int) -> _TimeLine:
        """Returns the end of a task that waits until certain times."""
        time, growth = max(lines)
        for earlier, faster in lines:
            if faster > growth:
                self._limit_repeats(1 + (time - earlier) // (faster - growth))
        return time + duration, growth

    def take_stored_result(self, awaited: _Awaited) -> _TimeLine | None:
        """Returns the time of a stored result, or None; removes it where rounds run one by one."""
        if awaited not in self.kept:
            return None
        if not self.step:
            return self.kept.pop(awaited), 0
        self._limit_repeats(1)
        return self.kept[awaited], 0

    def read_result_row(self, row: _ResultRow, micro_batch: int) -> _TimeLine | None:
        """Returns the time of a result in a row, or None if it is not there."""
        index, remainder = divmod(micro_batch - row.first, row.step)
        if remainder or not 0 <= index < row.times:
            return None
        time, growth = row.line
        rows_per_round, remainder = divmod(self.step, row.step)
        if self.step:
            self._limit_repeats(1 if remainder else 1 + (row.times - 1 - index) // rows_per_round)
        return time + growth * index, growth * rows_per_round


class _ClockState:
    """The times of IPUs and results after some tasks.

    Attributes:
      free: the time at which each IPU has done its last task.
      made: times of results that another IPU waits for, those of this run for itself.
      kept: those for other runs.
      sources: the edges on which tasks of a kind wait for results of other IPUs.
      delay: how long a result travels on an edge.
      readers: the edges on which other IPUs wait for the results of a kind.
      rows: more times for other runs, from rounds that were skipped.
      inside: the edges whose results this run makes and reads.
    """

    def __init__(self, schedule: Schedule, durations: Mapping[Kind, int], delays: Sequence[int]):
        self.layout, self.durations = schedule.layout, durations
        self.free: dict[int, _TimeLine] = dict.fromkeys(self.layout.all_ipus, (0, 0))
        self.made: dict[_Awaited, _TimeLine] = {}
        self.kept: dict[_Awaited, int] = {}
        # An IPU's own results are ready when it is free.
        edges: list[_Edge] = [
            ((*source, row[2]), row)
            for row in self.layout.list_rows(durations)
            for source in self.layout.inputs_of_kind(*row[:2])
            if not self._share_ipus(row, source[1])
        ]
        self.delay = {edge: delays[min(edge[0][1], edge[1][1])] if delays else 0 for edge in edges}
        self.sources, self.readers = (
            defaultdict[Row, list[_Edge]](list),
            defaultdict[Row, list[_Edge]](list),
        )
        for edge in edges:
            self.readers[edge[0]].append(edge)
            self.sources[edge[1]].append(edge)
        self.rows: dict[_Edge, list[_ResultRow]] = {edge: [] for edge in edges}
        self.inside: set[_Edge] = set()

    def _share_ipus(self, row: Row, other_stage: int) -> bool:
        """Returns whether the stage of a row and another one of its copy have a common IPU."""
        copy = self.layout.copies[self.layout.copy_of(row[2])]
        return not set(copy[row[1]]).isdisjoint(copy[other_stage])

    def _rows_of_run(self, run: Run) -> set[Row]:
        """Returns the rows that a run has tasks of."""
        rounds = range(min(run.times, self.layout.lanes))
        tasks = (task for n in rounds for tick in run.ticks_of_round(n) for task in tick)
        return {self.layout.row_of(task)[0] for task in tasks}

    def run_all_rounds(self, run: Run) -> None:
        """Runs all rounds of a run."""
        rows = self._rows_of_run(run)
        self.inside = {edge for edge in self.rows if rows.issuperset(edge)}
        self._store_results(self.made.items())
        self.made = {}
        history: deque[dict[_ClockKey, _TimeLine]] = deque(maxlen=2 * _LONGEST_CYCLE + 1)
        number = 0
        while number < run.times:
            times = _GrowingTimes(self.kept)
            self.run_ticks(run.ticks_of_round(number), times)
            self._store_results(times.made)
            number += 1
            is_uneven = bool(run.step % self.layout.lanes)
            if run.times - number < _LONGEST_CYCLE or len(self.made) > _FEW or is_uneven:
                continue
            history.append(self._relative_times(number * run.step))
            skipped = self._skip_rounds(history, run, number)
            if skipped:
                history.clear()
                number += skipped

    def _store_results(self, results: Iterable[tuple[_Awaited, _TimeLine]]) -> None:
        """Stores the times of results for other runs."""
        self.kept.update((awaited, time) for awaited, (time, _) in results)

    def run_ticks(self, ticks: Iterable[Tick], times: _GrowingTimes) -> None:
        """Runs the tasks of ticks."""
        for tick in ticks:
            for task in tick:
                row, _ = self.layout.row_of(task)
                group = self.layout.ipus_of(task)
                waits = [self.free[ipu] for ipu in group]
                for edge in self.sources.get(row, ()):
                    ready_time, growth = self._time_of_result((edge, task.micro_batch), times)
                    waits.append((ready_time + self.delay[edge], growth))
                end = times.end_of_task_after(waits, self.durations[row[:2]])
                self.free.update(dict.fromkeys(group, end))
                for edge in self.readers.get(row, ()):
                    if edge in self.inside:
                        self.made[edge, task.micro_batch] = end
                    else:
                        times.made.append(((edge, task.micro_batch), end))

    def _time_of_result(self, awaited: _Awaited, times: _GrowingTimes) -> _TimeLine:
        """Returns the time at which a result is ready."""
        if awaited in self.made:
            return self.made.pop(awaited)
        stored = times.take_stored_result(awaited)
        if stored is not None:
            return stored
        edge, micro_batch = awaited
        for result_row in self.rows[edge]:
            line = times.read_result_row(result_row, micro_batch)
            if line is not None:
                return line
        (phase, stage, _), _ = edge
        raise InternalError(f"no task has made the result of {Task(stage, phase, micro_batch)}")

    def _relative_times(self, ahead: int) -> dict[_ClockKey, _TimeLine]:
        """Returns all times, with micro-batches counted from the one that is `ahead`."""
        free: dict[_ClockKey, _TimeLine] = {(None, ipu): line for ipu, line in self.free.items()}
        return free | {(edge, number - ahead): line for (edge, number), line in self.made.items()}

    def _restore_times(self, lines: Mapping[_ClockKey, _TimeLine], ahead: int) -> None:
        """Sets all times from relative ones; the inverse of `_relative_times`."""
        self.free = {ipu: line for (edge, ipu), line in lines.items() if edge is None}
        self.made = {
            (edge, number + ahead): line
            for (edge, number), line in lines.items()
            if edge is not None
        }

    def _skip_rounds(
        self, history: deque[dict[_ClockKey, _TimeLine]], run: Run, number: int
    ) -> int:
        """Skips rounds whose times are known, and returns how many."""
        current = history[-1]
        for cycle in range(1, (len(history) - 1) // 2 + 1):
            growth = _growth_of_each_time(current, history[-1 - cycle])
            if growth is None or growth != _growth_of_each_time(
                history[-1 - cycle], history[-1 - 2 * cycle]
            ):
                continue
            lines = self._simulate_growth(current, growth, run, number, cycle)
            remaining_cycles = (run.times - number) // cycle
            times = remaining_cycles if lines.turns is None else min(lines.turns, remaining_cycles)
            if times < 2:
                self._restore_times(current, number * run.step)
                continue
            later = {key: (time + growth[key] * times, 0) for key, (time, _) in current.items()}
            self._restore_times(later, (number + times * cycle) * run.step)
            for (edge, micro_batch), line in lines.made:
                result_row = _ResultRow(micro_batch, cycle * run.step, times, line)
                self.rows[edge].append(result_row)
            return times * cycle
        return 0

    def _simulate_growth(
        self,
        current: dict[_ClockKey, _TimeLine],
        growth: dict[_ClockKey, int],
        run: Run,
        number: int,
        cycle: int,
    ) -> _GrowingTimes:
        """Runs one cycle of rounds, if all times grow like that from one cycle to the next."""
        times = _GrowingTimes(self.kept, cycle * run.step)
        self._restore_times(
            {key: (time, growth[key]) for key, (time, _) in current.items()}, number * run.step
        )
        for offset in range(cycle):
            self.run_ticks(run.ticks_of_round(number + offset), times)
        next_times = self._relative_times((number + cycle) * run.step)
        if next_times != {
            key: (time + growth[key], growth[key]) for key, (time, _) in current.items()
        }:
            times.turns = 0
        return times


def _growth_of_each_time(
    current: Mapping[_ClockKey, _TimeLine], earlier: Mapping[_ClockKey, _TimeLine]
) -> dict[_ClockKey, int] | None:
    """Returns how much later each time is; None where other results are waited for."""
    if current.keys() != earlier.keys():
        return None
    return {key: time - earlier[key][0] for key, (time, _) in current.items()}
