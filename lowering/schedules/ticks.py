"""Ticks of a schedule; repeated ones are stored once.

A pipeline warms up, repeats a round for the next micro-batches, and cools down. A million ticks
take no more memory here than one round of each.
"""

from __future__ import annotations

import bisect
import dataclasses as dc
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, cast, overload

from lowering.schedules.task import Phase, Task

Tick: TypeAlias = tuple[Task, ...]
"""The tasks of all IPUs between two syncs, in the order in which they are dispatched."""

_LONGEST_ROUND = 4096  # ticks: no repetition is searched further than this
_CANDIDATES = 8  # how many ends of a round are tried for each beginning


@dc.dataclass(frozen=True, slots=True)
class Run:
    """Ticks that repeat, each time for micro-batches further on.

    Attributes:
      ticks: the ticks of the first round.
      times: how many rounds there are.
      step: how many micro-batches further on each round is.
    """

    ticks: tuple[Tick, ...]
    times: int = 1
    step: int = 0

    def ticks_of_round(self, number: int) -> tuple[Tick, ...]:
        """Returns the ticks of a round, counted from 0."""
        shift = number * self.step
        return (
            self.ticks
            if not shift
            else tuple(shift_micro_batches(tick, shift) for tick in self.ticks)
        )


class Ticks(Sequence[Tick]):
    """A sequence of ticks, equal to their tuple, that stores repeated ones once.

    Args:
      runs: the runs, one after the other.
    """

    __slots__ = ("_starts", "runs")

    def __init__(self, runs: Iterable[Run]):
        self.runs = tuple(run for run in runs if run.ticks and run.times)
        lengths = (len(run.ticks) * run.times for run in self.runs)
        self._starts = (0, *itertools.accumulate(lengths))

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> Tick: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Tick, ...]: ...
    def __getitem__(self, index: int | slice) -> Tick | tuple[Tick, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        position = range(len(self))[index]
        number = bisect.bisect_right(self._starts, position) - 1
        run = self.runs[number]
        rounds, offset = divmod(position - self._starts[number], len(run.ticks))
        return shift_micro_batches(run.ticks[offset], rounds * run.step)

    def __iter__(self) -> Iterator[Tick]:
        for run in self.runs:
            for number in range(run.times):
                yield from run.ticks_of_round(number)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Ticks) and other.runs == self.runs:
            return True
        if not isinstance(other, (Ticks, tuple)):
            return NotImplemented
        ticks = cast("Sequence[object]", other)
        return len(self) == len(ticks) and all(a == b for a, b in zip(self, ticks, strict=True))

    def __hash__(self) -> int:
        # The same sequence may be cut into different runs.
        return hash((len(self), self[0], self[-1])) if self.runs else hash(())

    def __repr__(self) -> str:
        return f"<{len(self)} ticks>"


def one_task_per_tick(tasks: Iterable[Task], times: int = 1, step: int = 0) -> Run:
    """Returns ticks of one task each, for the order of one IPU."""
    return Run(tuple((task,) for task in tasks), times, step)


def shift_micro_batches(tick: Tick, by: int) -> Tick:
    """Returns the same tasks of other micro-batches."""
    return tuple(Task(stage, phase, number + by) for stage, phase, number in tick)


def runs_of_ticks(ticks: Sequence[Tick]) -> tuple[Run, ...]:
    """Returns the runs of ticks; others than `Ticks` are one run of a single round."""
    return ticks.runs if isinstance(ticks, Ticks) else (Run(tuple(ticks)),)


def representative_ticks(ticks: Sequence[Tick]) -> Iterator[Tick]:
    """Yields the ticks of the first two rounds of each run, and of the last.

    A property of neighbouring ticks there, if independent of the micro-batches' numbers, holds
    between all neighbours.
    """
    for run in runs_of_ticks(ticks):
        for number in sorted({0, min(1, run.times - 1), run.times - 1}):
            yield from run.ticks_of_round(number)


def fold_repeated_ticks(ticks: Sequence[Tick]) -> Ticks:
    """Folds ticks: those that repeat for other micro-batches are stored once."""
    marks, bases = _compare_each_tick_with_last(ticks)
    next_same: list[int] = [len(marks)] * len(marks)  # the next position of the same mark
    last: dict[int, int] = {}
    for position in reversed(range(len(marks))):
        next_same[position] = last.get(marks[position], len(marks))
        last[marks[position]] = position
    runs: list[Run] = []
    begin = position = 0
    while position < len(marks):
        length, times = _find_repeated_round(marks, next_same, position)
        if times < 3:
            position += 1
            continue
        runs.append(Run(tuple(ticks[begin:position])))
        step = bases[position + length] - bases[position]
        runs.append(Run(tuple(ticks[position : position + length]), times, step))
        begin = position = position + length * times
    return Ticks([*runs, Run(tuple(ticks[begin:]))])


def _compare_each_tick_with_last(ticks: Sequence[Tick]) -> tuple[list[int], list[int]]:
    """Returns a mark for each tick relative to the one before, and its first micro-batch.

    Where the marks repeat, the ticks do, each time the same number of micro-batches further on.
    """
    numbers: dict[tuple[int, tuple[tuple[int, Phase, int], ...]], int] = {}
    marks: list[int] = []
    bases: list[int] = []
    base = 0
    for tick in ticks:
        earlier_base, base = base, tick[0].micro_batch if tick else base
        relative_tasks = tuple((stage, phase, number - base) for stage, phase, number in tick)
        marks.append(numbers.setdefault((base - earlier_base, relative_tasks), len(numbers)))
        bases.append(base)
    return marks, bases


def _find_repeated_round(
    marks: Sequence[int], next_same: Sequence[int], position: int
) -> tuple[int, int]:
    """Returns the length of the round at a position, and how often it comes; (0, 0) if once."""
    end = position
    for _ in range(_CANDIDATES):
        end = next_same[end] if end < len(marks) else end
        length = end - position
        if end == len(marks) or length > _LONGEST_ROUND:
            break
        num_equal = 0
        while (
            end + num_equal < len(marks) and marks[end + num_equal] == marks[position + num_equal]
        ):
            num_equal += 1
        if num_equal >= 2 * length:
            return length, 1 + num_equal // length
    return 0, 0
