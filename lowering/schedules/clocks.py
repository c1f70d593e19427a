"""When a schedule ends if every task starts as soon as its IPUs and its inputs are there.

A million rounds are not run one by one. After some, every time of a round is as much later than
that of the round before as it was then: times are lines, `now + growth * rounds to come`. A task
starts at the latest of some times, and the latest of lines is the same line until another that
grows faster has caught up: up to there the rounds are skipped, exactly, since times are ints.
"""

from __future__ import annotations

import dataclasses as dc
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from lowering.errors import InternalError
from lowering.schedules.progress import Kind
from lowering.schedules.schedule import Schedule
from lowering.schedules.task import Phase, Task, needs
from lowering.schedules.ticks import Run, Tick, runs_of

_Line: TypeAlias = tuple[int, int]
"""A time, and how much later it is each time: 0 where rounds are run one by one."""

_Key: TypeAlias = tuple[Phase | None, int, int]
"""An IPU (None, IPU, 0), or a task whose result another IPU waits for."""

# Rounds do the same again at the latest after so many of them; all that is lost by more is time.
_LONGEST_CYCLE = 8
_FEW = 1024  # times of a round that are worth comparing with those of others


def end_of(schedule: Schedule, durations: Mapping[Kind, int]) -> int:
    """The end of the last task, in the unit of the durations.

    Args:
      schedule: one that `simulate` accepts.
      durations: of a task of each kind.
    """
    clocks = _Clocks(schedule, durations)
    for run in runs_of(schedule.ticks):
        clocks.run(run)
    return max(clocks.free.values())[0]


@dc.dataclass(frozen=True, slots=True)
class _Row:
    """When the results of many tasks of one kind are there.

    Attributes:
      first: the first micro-batch.
      step: from one micro-batch to the next.
      times: how many there are.
      line: of their times.
    """

    first: int
    step: int
    times: int
    line: _Line


class _Times:
    """How times come of other times.

    Args:
      kept: results that one run has made for another.
      step: how many micro-batches further on each time is; 0 where rounds are run one by one.

    Attributes:
      turns: how often all lines go on as they do; None for ever.
      made: results for other runs.
    """

    def __init__(self, kept: dict[Task, int], step: int = 0):
        self.kept, self.step = kept, step
        self.turns: int | None = None
        self.made: list[tuple[Task, _Line]] = []

    def _limit(self, turns: int) -> None:
        self.turns = turns if self.turns is None else min(self.turns, turns)

    def latest(self, lines: Sequence[_Line], duration: int) -> _Line:
        """The end of a task that waits until certain times."""
        time, growth = max(lines)
        for earlier, faster in lines:
            if faster > growth:
                self._limit(1 + (time - earlier) // (faster - growth))
        return time + duration, growth

    def take(self, task: Task) -> _Line | None:
        """The time of a result that has been kept."""
        if task not in self.kept:
            return None
        if not self.step:
            return self.kept.pop(task), 0
        self._limit(1)
        return self.kept[task], 0

    def read(self, row: _Row, micro_batch: int) -> _Line | None:
        """The time of a result in a row; None for one that is not there."""
        place, between = divmod(micro_batch - row.first, row.step)
        if between or not 0 <= place < row.times:
            return None
        time, growth = row.line
        more, between = divmod(self.step, row.step)
        if self.step:
            self._limit(1 if between else 1 + (row.times - 1 - place) // more)
        return time + growth * place, growth * more


class _Clocks:
    """What is known after some tasks.

    Attributes:
      free: when each IPU has done its last task.
      made: when results will be there that another IPU waits for, those of this run for itself.
      kept: those for other runs.
      rows: more of them, from rounds that were skipped.
    """

    def __init__(self, schedule: Schedule, durations: Mapping[Kind, int]):
        self.ipus, self.durations = schedule.ipus, durations
        self.free: dict[int, _Line] = {ipu: (0, 0) for group in schedule.ipus for ipu in group}
        self.made: dict[Task, _Line] = {}
        self.kept: dict[Task, int] = {}
        # What an IPU has made itself is there when it is free.
        self.source: dict[Kind, Kind] = {
            (phase, stage): (other, whose)
            for phase, stage in durations
            for other, whose in needs(phase, stage, schedule.stages)
            if set(schedule.ipus[stage]).isdisjoint(schedule.ipus[whose])
        }
        self.reader = {made: reads for reads, made in self.source.items()}
        self.rows: dict[Kind, list[_Row]] = {kind: [] for kind in self.reader}
        self.inside: set[Kind] = set()  # kinds that this run makes and reads

    def run(self, run: Run) -> None:
        """Runs all rounds of a run."""
        kinds = {(task.phase, task.stage) for tick in run.ticks for task in tick}
        self.inside = {kind for kind in kinds if self.reader.get(kind) in kinds}
        self._keep(self.made.items())
        self.made = {}
        history: deque[dict[_Key, _Line]] = deque(maxlen=2 * _LONGEST_CYCLE + 1)
        number = 0
        while number < run.times:
            times = _Times(self.kept)
            self.advance(run.round(number), times)
            self._keep(times.made)
            number += 1
            if run.times - number < _LONGEST_CYCLE or len(self.made) > _FEW:
                continue
            history.append(self._times(number * run.step))
            more = self._skip(history, run, number)
            if more:
                history.clear()
                number += more

    def _keep(self, made: Iterable[tuple[Task, _Line]]) -> None:
        """Results for other runs are there."""
        self.kept.update((task, time) for task, (time, _) in made)

    def advance(self, ticks: Iterable[Tick], times: _Times) -> None:
        """Runs tasks."""
        for tick in ticks:
            for task in tick:
                kind = (task.phase, task.stage)
                group = self.ipus[task.stage]
                waits = [self.free[ipu] for ipu in group]
                if kind in self.source:
                    waits.append(self._result(self.source[kind], task.micro_batch, times))
                end = times.latest(waits, self.durations[kind])
                self.free.update(dict.fromkeys(group, end))
                if kind in self.inside:
                    self.made[task] = end
                elif kind in self.reader:
                    times.made.append((task, end))

    def _result(self, kind: Kind, micro_batch: int, times: _Times) -> _Line:
        """When it is there."""
        task = Task(kind[1], kind[0], micro_batch)
        if task in self.made:
            return self.made.pop(task)
        kept = times.take(task)
        if kept is not None:
            return kept
        for row in self.rows[kind]:
            line = times.read(row, micro_batch)
            if line is not None:
                return line
        raise InternalError(f"nothing has made what reads {task}")

    def _times(self, ahead: int) -> dict[_Key, _Line]:
        """All times; micro-batches are counted from one that is `ahead`."""
        free: dict[_Key, _Line] = {(None, ipu, 0): line for ipu, line in self.free.items()}
        made = {(t.phase, t.stage, t.micro_batch - ahead): line for t, line in self.made.items()}
        return free | made

    def _set(self, lines: Mapping[_Key, _Line], ahead: int) -> None:
        """The other way round."""
        self.free = {ipu: line for (phase, ipu, _), line in lines.items() if phase is None}
        self.made = {
            Task(stage, phase, number + ahead): line
            for (phase, stage, number), line in lines.items()
            if phase is not None
        }

    def _skip(self, history: deque[dict[_Key, _Line]], run: Run, number: int) -> int:
        """Skips rounds, if it is known what comes of them; gives how many."""
        now = history[-1]
        for cycle in range(1, (len(history) - 1) // 2 + 1):
            growth = _grown(now, history[-1 - cycle])
            if growth is None or growth != _grown(history[-1 - cycle], history[-1 - 2 * cycle]):
                continue
            lines = self._lines(now, growth, run, number, cycle)
            rest = (run.times - number) // cycle
            times = rest if lines.turns is None else min(lines.turns, rest)
            if times < 2:
                self._set(now, number * run.step)
                continue
            later = {key: (time + growth[key] * times, 0) for key, (time, _) in now.items()}
            self._set(later, (number + times * cycle) * run.step)
            for task, line in lines.made:
                row = _Row(task.micro_batch, cycle * run.step, times, line)
                self.rows[task.phase, task.stage].append(row)
            return times * cycle
        return 0

    def _lines(
        self, now: dict[_Key, _Line], growth: dict[_Key, int], run: Run, number: int, cycle: int
    ) -> _Times:
        """The next rounds, if all times grow like that from one cycle of rounds to the next."""
        times = _Times(self.kept, cycle * run.step)
        self._set({key: (time, growth[key]) for key, (time, _) in now.items()}, number * run.step)
        for more in range(cycle):
            self.advance(run.round(number + more), times)
        after = self._times((number + cycle) * run.step)
        if after != {key: (time + growth[key], growth[key]) for key, (time, _) in now.items()}:
            times.turns = 0
        return times


def _grown(now: Mapping[_Key, _Line], before: Mapping[_Key, _Line]) -> dict[_Key, int] | None:
    """How much later everything is; None where not the same is waited for."""
    if now.keys() != before.keys():
        return None
    return {key: time - before[key][0] for key, (time, _) in now.items()}
