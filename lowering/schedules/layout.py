"""Layouts: the IPUs that run a pipeline's tasks, and the tasks that each task waits for."""

from __future__ import annotations

import dataclasses as dc
import functools
import math
from collections.abc import Iterable
from typing import TypeAlias

from lowering.schedules.needs_table import NeedsTable, usual_needs
from lowering.schedules.task import Groups, Kind, Phase, Task, inputs_on_stage

Row: TypeAlias = tuple[Phase, int, int]
"""A phase, the stage that it is of, and the lane: micro-batches that are alike."""


@dc.dataclass(frozen=True, kw_only=True)
class Layout:
    """The copies of a pipeline's stages, and its micro-batches.

    Attributes:
      micro_batches: how many pass through the stages.
      copies: for each copy of the stages, the IPUs of each stage.
      copy_pattern: the copy that each micro-batch passes through; it repeats.
      segments: how many micro-batches, one after the other, are parts of one sequence.
      between: the kinds of tasks between forward and backward ones: R, O and L.
      needs_table: what tasks wait for on other stages, where that is not the usual.
    """

    micro_batches: int
    copies: tuple[Groups, ...]
    copy_pattern: tuple[int, ...] = (0,)
    segments: int = 1
    between: frozenset[Kind] = frozenset()
    needs_table: NeedsTable = ()

    @functools.cached_property
    def stages(self) -> int:
        """The number of forward stages."""
        return len(self.copies[0])

    @functools.cached_property
    def lanes(self) -> int:
        """The number of micro-batches after which copies and segments repeat."""
        return math.lcm(len(self.copy_pattern), self.segments)

    @property
    def all_ipus(self) -> list[int]:
        """All IPUs, in ascending order."""
        return sorted({ipu for copy in self.copies for group in copy for ipu in group})

    def copy_of(self, micro_batch: int) -> int:
        """Returns the number of the copy that a micro-batch passes through."""
        return self.copy_pattern[micro_batch % len(self.copy_pattern)]

    def ipus_of(self, task: Task) -> tuple[int, ...]:
        """Returns the IPUs that run a task, those of its stage in its copy."""
        if len(self.copies) == 1:
            return self.copies[0][task.stage]
        return self.copies[self.copy_of(task.micro_batch)][task.stage]

    @functools.cached_property
    def _inputs_of_kinds(self) -> dict[Kind, tuple[Kind, ...]]:
        """The cache of `inputs_of_kind`."""
        return {}

    def inputs_of_kind(self, phase: Phase, stage: int) -> tuple[Kind, ...]:
        """Returns the (phase, stage) of the tasks of a micro-batch that a task waits for."""
        if (phase, stage) not in self._inputs_of_kinds:
            elsewhere = dict(self.needs_table).get((phase, stage))
            usual = usual_needs(phase, stage, self.stages)
            self._inputs_of_kinds[phase, stage] = (
                *inputs_on_stage(phase, stage, self.between),
                *(usual if elsewhere is None else elsewhere),
            )
        return self._inputs_of_kinds[phase, stage]

    def runs_before(self, earlier: Kind, later: Kind) -> bool:
        """Returns whether a task of a kind waits, directly or not, for one of another kind.

        Both are of one micro-batch.
        """
        return bool(self._kinds_before(later) >> self._number_of_kind(earlier) & 1)

    def _kinds_before(self, kind: Kind) -> int:
        """Returns the kinds that run before one of a kind, as the bits of an integer.

        As ints, those of all kinds are small, though they grow with the square of the stages.
        """
        if kind not in self._bits_of_kinds_before:
            earlier_bits = 0
            for needed in self.inputs_of_kind(*kind):
                earlier_bits |= self._kinds_before(needed) | 1 << self._number_of_kind(needed)
            self._bits_of_kinds_before[kind] = earlier_bits
        return self._bits_of_kinds_before[kind]

    def _number_of_kind(self, kind: Kind) -> int:
        return self._numbers_of_kinds.setdefault(kind, len(self._numbers_of_kinds))

    @functools.cached_property
    def _bits_of_kinds_before(self) -> dict[Kind, int]:
        """The cache of `_kinds_before`."""
        return {}

    @functools.cached_property
    def _numbers_of_kinds(self) -> dict[Kind, int]:
        """The number of the bit of each kind that was asked for."""
        return {}

    def needs(self, task: Task) -> tuple[Task, ...]:
        """Returns the tasks whose results a task waits for."""
        stage, phase, number = task
        inputs = self.inputs_of_kind(phase, stage)
        needed_tasks = tuple(Task(needed_stage, needed, number) for needed, needed_stage in inputs)
        if self.segments == 1:
            return needed_tasks
        position = number % self.segments
        if phase == Phase.FORWARD and position:
            return (*needed_tasks, Task(stage, phase, number - 1))
        is_last = position == self.segments - 1 or number == self.micro_batches - 1
        if phase == Phase.BACKWARD and not is_last:
            return (*needed_tasks, Task(stage, phase, number + 1))
        return needed_tasks

    def row_of(self, task: Task) -> tuple[Row, int]:
        """Returns the row of a task, and its number in it, counted from 0."""
        if self.lanes == 1:
            return (task.phase, task.stage, 0), task.micro_batch
        number, lane = divmod(task.micro_batch, self.lanes)
        return (task.phase, task.stage, lane), number

    def list_rows(self, kinds: Iterable[Kind]) -> list[Row]:
        """Lists the rows of all tasks of some kinds."""
        lanes = range(min(self.lanes, self.micro_batches))
        return [(phase, stage, lane) for phase, stage in kinds for lane in lanes]

    def count_row(self, lane: int) -> int:
        """Returns how many micro-batches a lane has."""
        return len(range(lane, self.micro_batches, self.lanes))
