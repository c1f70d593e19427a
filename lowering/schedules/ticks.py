"""Ticks of a schedule, written down once where they come again.

A pipeline warms up, does the same again and again for the next micro-batches, and cools down. What
it does in a million ticks takes no more room here than one round of each.
"""

from __future__ import annotations

import bisect
import dataclasses as dc
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias, overload

from lowering.schedules.task import Phase, Task

Tick: TypeAlias = tuple[Task, ...]
"""What all IPUs do between two syncs, in the order in which it is dispatched."""

_LONGEST_ROUND = 4096  # ticks: `folded` looks no further for the same tick to come again
_CANDIDATES = 8  # how many places at which a round may end are tried for each that it may begin


@dc.dataclass(frozen=True, slots=True)
class Run:
    """Ticks that come again, each time for micro-batches further on.

    Attributes:
      ticks: of the first round.
      times: how many rounds there are.
      step: how many micro-batches further on each round is.
    """

    ticks: tuple[Tick, ...]
    times: int = 1
    step: int = 0

    def round(self, number: int) -> tuple[Tick, ...]:
        """The ticks of a round, counted from 0."""
        ahead = number * self.step
        return self.ticks if not ahead else tuple(shifted(tick, ahead) for tick in self.ticks)


class Ticks(Sequence[Tick]):
    """A tuple of ticks to those who read it, whatever it takes to keep.

    Args:
      runs: what comes one after the other.
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
        place = range(len(self))[index]
        number = bisect.bisect_right(self._starts, place) - 1
        run = self.runs[number]
        rounds, offset = divmod(place - self._starts[number], len(run.ticks))
        return shifted(run.ticks[offset], rounds * run.step)

    def __iter__(self) -> Iterator[Tick]:
        for run in self.runs:
            for number in range(run.times):
                yield from run.round(number)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Ticks, tuple)):
            return NotImplemented
        ticks: Sequence[Any] = other
        if isinstance(ticks, Ticks) and ticks.runs == self.runs:
            return True
        return len(self) == len(ticks) and all(a == b for a, b in zip(self, ticks, strict=True))

    def __hash__(self) -> int:
        # The same sequence may be cut into different runs.
        return hash((len(self), self[0], self[-1])) if self.runs else hash(())

    def __repr__(self) -> str:
        return f"<{len(self)} ticks>"


def in_turn(tasks: Iterable[Task], times: int = 1, step: int = 0) -> Run:
    """Ticks of one task each: what one IPU does, in order."""
    return Run(tuple((task,) for task in tasks), times, step)


def shifted(tick: Tick, by: int) -> Tick:
    """The same tasks of other micro-batches."""
    return tuple(Task(stage, phase, number + by) for stage, phase, number in tick)


def runs_of(ticks: Sequence[Tick]) -> tuple[Run, ...]:
    """What ticks consist of; others than `Ticks` are one run of a single round."""
    return ticks.runs if isinstance(ticks, Ticks) else (Run(tuple(ticks)),)


def outline(ticks: Sequence[Tick]) -> Iterator[Tick]:
    """The first two rounds of each run, and the last.

    What holds between neighbours there, and does not depend on how far on the micro-batches are,
    holds between all neighbours.
    """
    for run in runs_of(ticks):
        for number in sorted({0, min(1, run.times - 1), run.times - 1}):
            yield from run.round(number)


def folded(ticks: Sequence[Tick]) -> Ticks:
    """The same ticks; those that come again for other micro-batches are written down once."""
    marks, bases = _marks(ticks)
    again: list[int] = [len(marks)] * len(marks)  # where the same mark is next
    last: dict[int, int] = {}
    for place in reversed(range(len(marks))):
        again[place] = last.get(marks[place], len(marks))
        last[marks[place]] = place
    runs: list[Run] = []
    begin = place = 0
    while place < len(marks):
        length, times = _repeated(marks, again, place)
        if times < 3:
            place += 1
            continue
        runs.append(Run(tuple(ticks[begin:place])))
        step = bases[place + length] - bases[place]
        runs.append(Run(tuple(ticks[place : place + length]), times, step))
        begin = place = place + length * times
    return Ticks([*runs, Run(tuple(ticks[begin:]))])


def _marks(ticks: Sequence[Tick]) -> tuple[list[int], list[int]]:
    """For each tick what it looks like from the one before, and the micro-batch that it begins at.

    Where the marks repeat, the ticks do, each time the same number of micro-batches further on.
    """
    numbers: dict[tuple[int, tuple[tuple[int, Phase, int], ...]], int] = {}
    marks: list[int] = []
    bases: list[int] = []
    base = 0
    for tick in ticks:
        before, base = base, tick[0].micro_batch if tick else base
        look = tuple((stage, phase, number - base) for stage, phase, number in tick)
        marks.append(numbers.setdefault((base - before, look), len(numbers)))
        bases.append(base)
    return marks, bases


def _repeated(marks: Sequence[int], again: Sequence[int], place: int) -> tuple[int, int]:
    """The length of the round that begins at a place, and how often it comes; (0, 0) if once."""
    end = place
    for _ in range(_CANDIDATES):
        end = again[end] if end < len(marks) else end
        length = end - place
        if end == len(marks) or length > _LONGEST_ROUND:
            break
        same = 0
        while end + same < len(marks) and marks[end + same] == marks[place + same]:
            same += 1
        if same >= 2 * length:
            return length, 1 + same // length
    return 0, 0
