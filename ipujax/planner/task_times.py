"""The makespan of a schedule for many cuts of a model at once, and paths through its tasks.

A path is tasks and transfers each of which waits for the one before it. It is kept as the number of
times that each thing which a stage takes counts in it, [stages, COLUMNS].
"""

from __future__ import annotations

import bisect
import dataclasses as dc
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lowering import schedules


@dc.dataclass(frozen=True, eq=False)
class StageTimes:
    """The times of the stages of many cuts, in seconds.

    Attributes:
      tasks: float64 [stages, cuts] for each phase: how long a stage's task takes.
      delays: float64 [stages - 1, cuts]: how long what passes to the next stage travels.
      updates: float64 [stages, cuts]: how long the update of a stage's weights takes.
    """

    tasks: dict[schedules.Phase, np.ndarray]
    delays: np.ndarray
    updates: np.ndarray


FORWARD, BACKWARD, WEIGHTS, UPDATE, DELAY, PARAMETERS, STASH, RECOMPUTED, CONSTANT = range(9)
"""The columns of what a stage takes: seconds of its tasks, and of the update of its weights; the
seconds that what enters it travels; bytes of its parameters, of what it keeps of a micro-batch that
waits, and of what it recomputes; and 1, for what is there whatever the stages are."""
COLUMNS = 9


class _Link(NamedTuple):
    """The tasks that a task waits for.

    Attributes:
      previous: the number of the task before it on its IPU; -1 for the first.
      source: the number of the task of another IPU whose result it waits for; or -1.
      boundary: the later of the two stages between which this result passes.
      stage: its own stage.
      column: the column of its seconds.
    """

    previous: int
    source: int
    boundary: int
    stage: int
    column: int


class _Entry(NamedTuple):
    """A task in the order in which a schedule dispatches them.

    Attributes:
      ipu: the IPU that runs it.
      phase: its phase.
      stage: its stage.
      read_slot: where the end of the task of another IPU is, whose result it waits for; or -1.
      boundary: the number of the boundary that this result passes.
      written_slot: where its own end is put, if another IPU waits for it; or -1.
    """

    ipu: int
    phase: schedules.Phase
    stage: int
    read_slot: int
    boundary: int
    written_slot: int


_COLUMNS = {
    schedules.Phase.FORWARD: FORWARD,
    schedules.Phase.BACKWARD: BACKWARD,
    schedules.Phase.WEIGHTS: WEIGHTS,
}


class TaskTimes:
    """The tasks of a schedule as a list, along which times are added up.

    Args:
      schedule: one with a single IPU for each stage.
    """

    def __init__(self, schedule: schedules.Schedule):
        self._ipus = [group[0] for group in schedule.ipus]
        self._num_ipus = len(set(self._ipus))
        self._entries: list[_Entry] = []
        self._links: list[_Link] = []
        self._num_slots = 0
        free_slots: list[int] = []
        slot_of: dict[tuple[schedules.Phase, int, int], int] = {}
        number_of: dict[tuple[schedules.Phase, int, int], int] = {}
        last_of_ipu = [-1] * (max(self._ipus) + 1)
        for tick in schedule.ticks:
            for stage, phase, micro_batch in tick:
                source = self._source(phase, stage)
                read_slot = -1 if source is None else slot_of.pop((phase, source, micro_batch))
                written_slot = -1
                if self._is_awaited(phase, stage):
                    written_slot = free_slots.pop() if free_slots else self._num_slots
                    self._num_slots = max(self._num_slots, written_slot + 1)
                    slot_of[phase, stage, micro_batch] = written_slot
                if read_slot >= 0:
                    free_slots.append(read_slot)
                boundary, ipu = 0 if source is None else min(stage, source), self._ipus[stage]
                sender = -1 if source is None else number_of.pop((phase, source, micro_batch))
                number = len(self._entries)
                if written_slot >= 0:
                    number_of[phase, stage, micro_batch] = number
                self._links.append(
                    _Link(last_of_ipu[ipu], sender, boundary + 1, stage, _COLUMNS[phase])
                )
                last_of_ipu[ipu] = number
                self._entries.append(_Entry(ipu, phase, stage, read_slot, boundary, written_slot))
        self._last_tasks = last_of_ipu
        self._readers = [-1] * len(self._links)
        self._tasks_of_ipu: list[list[int]] = [[] for _ in last_of_ipu]
        for number, (entry, link) in enumerate(zip(self._entries, self._links, strict=True)):
            self._tasks_of_ipu[entry.ipu].append(number)
            if link.source >= 0:
                self._readers[link.source] = number

    def __len__(self) -> int:
        """Returns the number of tasks."""
        return len(self._entries)

    def _source(self, phase: schedules.Phase, stage: int) -> int | None:
        """Returns the stage on another IPU whose task of this phase a task waits for."""
        source = {schedules.Phase.FORWARD: stage - 1, schedules.Phase.BACKWARD: stage + 1}.get(
            phase, -1
        )
        if not 0 <= source < len(self._ipus) or self._ipus[source] == self._ipus[stage]:
            return None
        return source

    def _is_awaited(self, phase: schedules.Phase, stage: int) -> bool:
        """Returns whether a task on another IPU waits for tasks of a stage and phase."""
        reader = {schedules.Phase.FORWARD: stage + 1, schedules.Phase.BACKWARD: stage - 1}.get(
            phase, -1
        )
        return 0 <= reader < len(self._ipus) and self._ipus[reader] != self._ipus[stage]

    def compute_makespans(self, times: StageTimes) -> np.ndarray:
        """Computes when the last task ends, for each cut.

        Returns:
          float64 [cuts], in seconds.
        """
        cuts = times.tasks[schedules.Phase.FORWARD].shape[1]
        free_times = np.zeros((self._num_ipus, cuts))
        ends = np.zeros((self._num_slots, cuts))
        for ipu, phase, stage, read_slot, boundary, written_slot in self._entries:
            clock = free_times[ipu]
            if read_slot >= 0:
                np.maximum(clock, ends[read_slot] + times.delays[boundary], out=clock)
            clock += times.tasks[phase][stage]
            if written_slot >= 0:
                ends[written_slot] = clock
        return free_times.max(axis=0)

    def find_longest_path(self, row: np.ndarray) -> np.ndarray:
        """Finds the path of tasks and transfers on which the makespan depends.

        Its seconds are the makespan; for other times of stages they are no more than the makespan.

        Args:
          row: float64 [stages, COLUMNS]: what stages take.

        Returns:
          float64 [stages, COLUMNS]: how often each thing that a stage takes counts.
        """
        seconds: list[list[float]] = row.tolist()
        ends = [0.0] * (len(self._links) + 1)  # the last stands for -1: nothing before a first task
        for number, (previous, source, boundary, stage, column) in enumerate(self._links):
            start = ends[previous]
            if source >= 0:
                start = max(start, ends[source] + seconds[boundary][DELAY])
            ends[number] = start + seconds[stage][column]
        counts = np.zeros(row.shape)
        number = max(self._last_tasks, key=ends.__getitem__)
        while number >= 0:
            previous, source, boundary, stage, column = self._links[number]
            counts[stage, column] += 1
            is_late = source >= 0 and ends[source] + seconds[boundary][DELAY] > ends[previous]
            counts[boundary if is_late else stage, DELAY] += is_late
            number = source if is_late else previous
        return counts

    def find_straight_path(self, ipu: int) -> np.ndarray:
        """Finds the path of all tasks of an IPU up to the last gradient that another IPU awaits.

        It begins with what the IPU's first task waits for, and ends with what waits for that
        gradient. Its seconds are no more than the makespan, whatever stages take.

        Args:
          ipu: the number of the IPU.

        Returns:
          float64 [stages, COLUMNS]: how often each thing that a stage takes counts.
        """
        counts = np.zeros((len(self._ipus), COLUMNS))
        first = self._tasks_of_ipu[ipu][0]
        number = self._links[first].previous if self._links[first].source < 0 else first
        while number >= 0:
            previous, source, boundary, stage, column = self._links[number]
            counts[stage, column] += number != first
            counts[boundary, DELAY] += source >= 0
            number = source if source >= 0 else previous
        number = first
        while number >= 0:
            tasks_of_ipu = self._tasks_of_ipu[self._entries[number].ipu]
            later = tasks_of_ipu[bisect.bisect_left(tasks_of_ipu, number) :]
            last = max(filter(self._ends_elsewhere, later), default=later[-1])
            for task in later[: later.index(last) + 1]:
                counts[self._links[task].stage, self._links[task].column] += 1
            number = self._readers[last] if self._ends_elsewhere(last) else -1
            if number >= 0:
                counts[self._links[number].boundary, DELAY] += 1
        return counts

    def _ends_elsewhere(self, number: int) -> bool:
        """Returns whether a task is a backward task for which another IPU waits."""
        return self._links[number].column == BACKWARD and self._readers[number] >= 0


def sum_by_ipu(rows: np.ndarray, device_mapping: Sequence[int]) -> np.ndarray:
    """Adds the rows of stages that share an IPU: [stages, cuts] to [ipus, cuts]."""
    sums = np.zeros((max(device_mapping) + 1, rows.shape[1]))
    np.add.at(sums, list(device_mapping), rows)
    return sums
