"""Every task in the earliest tick that the order of its IPU and its inputs allow.

All IPUs go on together, tick by tick. Once all of them are where they were some ticks ago, each as
many micro-batches further on, they will do the same again, for as long as their orders repeat and
nobody who stood still meanwhile is concerned: so many rounds are one run of the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, NoReturn, TypeAlias

from lowering.schedules.errors import ScheduleError
from lowering.schedules.grid import draw
from lowering.schedules.progress import Kind, Progress
from lowering.schedules.task import Groups, Phase, Task, needs
from lowering.schedules.ticks import Run, Tick, Ticks

# The order in which the tasks of a tick are dispatched: what frees memory before what fills it.
_DISPATCH = {Phase.BACKWARD: 0, Phase.WEIGHTS: 1, Phase.FORWARD: 2}
_SHOWN = 8  # ticks before a deadlock, and IPUs stuck in it, that the message shows

_Places: TypeAlias = tuple[tuple[int, int, bool], ...]
"""For each IPU, the run of its order that it is in, the place within a round, and if it waits."""


def earliest(name: str, orders: Mapping[int, Ticks], ipus: Groups) -> Ticks:
    """The ticks of a schedule.

    Args:
      name: of the schedule, for messages' sake.
      orders: what each IPU runs, one task in a tick.
      ipus: the IPUs of each stage.

    Raises:
      ScheduleError: orders in which IPUs wait for one another.
    """
    return _Placing(name, orders, ipus).ticks()


class _Cursor:
    """How far an IPU is in its order.

    Attributes:
      number: of the run that it is in.
      run: that one; one without ticks at the end.
      round: of that run.
      place: within the round.
      head: the next task; None at the end.
    """

    def __init__(self, order: Ticks):
        self.runs = (*order.runs, Run(()))
        self.number = self.round = self.place = 0
        self._load()

    def _load(self) -> None:
        """Finds the tasks of the round."""
        self.run = self.runs[self.number]
        self.tasks = self.run.round(self.round)
        self.head = self.tasks[self.place][0] if self.tasks else None

    def advance(self) -> None:
        """Goes on to the next task."""
        self.place += 1
        if self.place < len(self.tasks):
            self.head = self.tasks[self.place][0]
            return
        self.place = 0
        self.round += 1
        if self.round == self.run.times:
            self.number, self.round = self.number + 1, 0
        self._load()

    def skip(self, rounds: int) -> None:
        """Goes on to the same place of a later round of the same run."""
        self.round += rounds
        self._load()


class _Before(NamedTuple):
    """How far everything was after `tick` ticks; `rounds` is by IPU."""

    tick: int
    rounds: tuple[int, ...]
    done: dict[Kind, int]


class _Placing:
    def __init__(self, name: str, orders: Mapping[int, Ticks], ipus: Groups):
        self.name, self.ipus = name, ipus
        self.cursors = {ipu: _Cursor(order) for ipu, order in orders.items()}
        kinds = [(phase, stage) for phase in Phase for stage in range(len(ipus))]
        self.inputs = {kind: needs(*kind, len(ipus)) for kind in kinds}
        self.done = Progress(kinds)
        self.waiting: dict[tuple[Kind, int], list[int]] = {}  # the IPUs that wait for a task
        self.runs: list[Run] = []
        self.recent: list[Tick] = []  # after those in `runs`
        self.before: dict[_Places, _Before] = {}  # since the last tick that nothing repeats

    def ticks(self) -> Ticks:
        awake = set(self.cursors)
        while tick := self._tick(awake):
            self.recent.append(tick)
            awake = self._finish(tick)
            self._skip(awake)
        if any(cursor.head for cursor in self.cursors.values()):
            self._fail_stuck()
        return Ticks([*self.runs, Run(tuple(self.recent))])

    def _tick(self, awake: set[int]) -> Tick:
        """The tasks that can run now; IPUs that wait for others are noted."""
        tasks: set[Task] = set()
        for ipu in awake:
            task = self.cursors[ipu].head
            if task is None or task in tasks:
                continue
            missing = next(self._missing(task), None)
            if missing is not None:
                self.waiting.setdefault((missing, task.micro_batch), []).append(ipu)
            # The last of several IPUs to come to the task runs it for all of them.
            elif all(self.cursors[i].head == task for i in self.ipus[task.stage]):
                tasks.add(task)
        return tuple(sorted(tasks, key=_dispatched))

    def _missing(self, task: Task) -> Iterator[Kind]:
        for kind in self.inputs[task.phase, task.stage]:
            if not self.done.has(kind, task.micro_batch):
                yield kind

    def _finish(self, tick: Tick) -> set[int]:
        """Counts what a tick has run; gives the IPUs that may run something in the next."""
        awake: set[int] = set()
        for stage, phase, micro_batch in tick:
            self.done.add((phase, stage), micro_batch)
            for ipu in self.ipus[stage]:
                self.cursors[ipu].advance()
                awake.add(ipu)
            awake.update(self.waiting.pop(((phase, stage), micro_batch), ()))
        return {ipu for ipu in awake if self.cursors[ipu].head}

    def _skip(self, awake: set[int]) -> None:
        """Runs at once what all IPUs are about to repeat."""
        if not all(self.cursors[ipu].run.times > 1 for ipu in awake):
            self.before.clear()
            return
        done = self.done.in_order()
        if done is None:
            return
        cursors = self.cursors.values()
        now = _Before(len(self.recent), tuple(cursor.round for cursor in cursors), done)
        places = tuple((c.number, c.place, ipu in awake) for ipu, c in self.cursors.items())
        before = self.before.get(places)
        self.before[places] = now
        moving = self._moving(before, now) if before else {}
        if before is None or not awake <= moving.keys():
            return
        step = self._step(before, now, moving)
        times = self._times(before, now, moving, step) if step > 0 else 0
        if not times:
            return
        self.runs.append(Run(tuple(self.recent[: before.tick])))
        self.runs.append(Run(tuple(self.recent[before.tick :]), 1 + times, step))
        self.recent.clear()
        self.before.clear()
        self.done.skip({kind: times * (n - before.done[kind]) for kind, n in done.items()})
        for ipu, more in moving.items():
            self.cursors[ipu].skip(times * more)
        self._wait_for_later(moving, times * step)

    def _moving(self, before: _Before, now: _Before) -> dict[int, int]:
        """The IPUs that have gone on since, and by how many rounds."""
        went = [at - was for was, at in zip(before.rounds, now.rounds, strict=True)]
        return {ipu: more for ipu, more in zip(self.cursors, went, strict=True) if more}

    def _step(self, before: _Before, now: _Before, moving: Mapping[int, int]) -> int:
        """By how many micro-batches everything that moves has gone on; 0 if not all by as many."""
        steps = {n - before.done[kind] for kind, n in now.done.items()} - {0}
        steps.update(more * self.cursors[ipu].run.step for ipu, more in moving.items())
        return max(steps) if len(steps) == 1 else 0

    def _times(self, before: _Before, now: _Before, moving: Mapping[int, int], step: int) -> int:
        """How often more the same will come."""
        going = [(self.cursors[ipu], more) for ipu, more in moving.items()]
        times = min((cursor.run.times - 1 - cursor.round) // more for cursor, more in going)
        still = {kind for kind, n in now.done.items() if n == before.done[kind]}
        # Until what others made some time ago is used up,
        for stage, phase, micro_batch in itertools.chain(*self.recent[before.tick :]):
            for kind in still.intersection(self.inputs[phase, stage]):
                times = min(times, (now.done[kind] - 1 - micro_batch) // step)
        # and until others have what they have been waiting for.
        for (kind, micro_batch), ipus in self.waiting.items():
            if kind not in still and not moving.keys() >= set(ipus):
                times = min(times, (micro_batch - now.done[kind]) // step)
        return times

    def _wait_for_later(self, moving: Collection[int], ahead: int) -> None:
        """What IPUs that have gone on wait for is as much further on."""
        waiting, self.waiting = self.waiting, {}
        for (kind, micro_batch), ipus in waiting.items():
            for ipu in ipus:
                later = micro_batch + (ahead if ipu in moving else 0)
                self.waiting.setdefault((kind, later), []).append(ipu)

    def _fail_stuck(self) -> NoReturn:
        """Raises the error of IPUs that wait for one another, with what ran until then."""
        ticks = [*Ticks([*self.runs, Run(tuple(self.recent))])]
        end = len(ticks)
        heads = {ipu: c.head for ipu, c in self.cursors.items()}
        stuck = {ipu: task for ipu, task in heads.items() if task is not None}
        waits: list[str] = []
        for ipu, task in stuck.items():
            kinds = self._missing(task)
            missing = [str(Task(stage, phase, task.micro_batch)) for phase, stage in kinds]
            partners = [f"IPU {i}" for i in self.ipus[task.stage] if stuck.get(i) != task]
            waits.append(f"{task} on IPU {ipu} waits for {' and '.join(missing or partners)}")
        more = len(waits) - _SHOWN
        listed = "; ".join(waits[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        waiting = [(end, task) for task in dict.fromkeys(stuck.values())]
        ticks.append(tuple(task for _, task in waiting))
        raise ScheduleError(
            f"{self.name}: deadlock after {end} ticks: {listed}",
            grid=draw(self.ipus, ticks, max(0, end - _SHOWN), end + 1, waiting),
            fix="put what is waited for (`>` marks who waits) earlier in the order of its IPU",
        )


def _dispatched(task: Task) -> tuple[int, int]:
    """Where a task stands in its tick."""
    forward = task.phase == Phase.FORWARD
    return _DISPATCH[task.phase], -task.stage if forward else task.stage
