"""A schedule: what the IPUs of a pipeline do, tick by tick, as data."""

from __future__ import annotations

import dataclasses as dc
import itertools
import operator
from collections.abc import Sequence
from typing import Any

from lowering.public import lists
from lowering.schedules.errors import ScheduleError, check_is, shown
from lowering.schedules.grid import grid
from lowering.schedules.picture import picture
from lowering.schedules.task import Groups, Phase
from lowering.schedules.ticks import Tick, Ticks, runs_of

# More is taken for a mistake: reports have an entry for each task.
MAX_STAGES = 1024
MAX_MICRO_BATCHES = 10**7

# The IPUs of each stage as a user gives them; None puts stage i on IPU i.
Ipus = Sequence[int | Sequence[int]] | None


@lists()
@dc.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Schedule:
    """Every task of a pipeline, in the tick in which it runs.

    That the tasks are complete and in a possible order is what `simulate` checks.

    Attributes:
      name: what to call it in texts; one line.
      stages: how many forward stages there are.
      micro_batches: how many micro-batches pass through them.
      training: whether there are backward tasks.
      ipus: the IPUs of each stage: usually one, several for concurrent stages.
      ticks: what all IPUs do between two syncs, in the order in which it is dispatched. An IPU
        runs its own tasks of a tick one after the other in this order; different IPUs run at the
        same time.

    Raises:
      ScheduleError: numbers that are not positive, a name of several lines, or IPUs that do not
        fit the stages.
    """

    name: str
    stages: int
    micro_batches: int
    training: bool
    ipus: Groups
    ticks: Sequence[Tick]

    def __post_init__(self) -> None:
        name = self.name
        check_is(name, str, "the name of a schedule")
        if not name.isprintable() or not name or name != name.strip() or "#" in name:
            raise ScheduleError(
                f"{name!r} as the name of a schedule", fix="use one printable line, without `#`"
            )
        check_sizes(self.stages, self.micro_batches, self.training)
        if place(self.stages, self.ipus) != self.ipus:
            raise ScheduleError(f"ipus={self.ipus!r}", fix="give a tuple of IPUs for every stage")
        if not isinstance(self.ticks, (tuple, Ticks)):
            raise ScheduleError(
                f"{type(self.ticks).__name__} as the ticks of a schedule",
                fix="give a tuple with the tuple of the tasks of each tick",
            )

    @property
    def splits_backward(self) -> bool:
        """Whether gradients of inputs and of weights are tasks of their own."""
        runs = runs_of(self.ticks)
        return any(t.phase == Phase.WEIGHTS for run in runs for tick in run.ticks for t in tick)

    @property
    def num_tasks(self) -> int:
        """How many tasks there are; one that runs on several IPUs counts once."""
        return sum(run.times * sum(map(len, run.ticks)) for run in runs_of(self.ticks))

    def _repr_html_(self) -> str:
        """A drawing, for notebooks."""
        return picture(self)

    def __str__(self) -> str:
        return f"{self._title()}\n{grid(self)}"

    def __repr__(self) -> str:
        return f"<Schedule {self._title()}>"

    def _title(self) -> str:
        kind = "training" if self.training else "inference"
        return (
            f"{self.name}: {self.stages} stages, {self.micro_batches} micro-batches, {kind}, "
            f"{len(self.ticks)} ticks"
        )


def check_sizes(stages: int, micro_batches: int, training: bool) -> None:
    """Refuses numbers of stages and micro-batches that no pipeline has.

    Raises:
      ScheduleError: what is no int, below one, or above `MAX_STAGES` or `MAX_MICRO_BATCHES`; or it
        is not said whether there are backward tasks.
    """
    check_flag(training, "training")
    check_number(stages, "a schedule of {} stages", MAX_STAGES)
    check_number(micro_batches, "a schedule of {} micro-batches", MAX_MICRO_BATCHES)


def check_flag(value: Any, what: str) -> None:
    """Refuses what is neither True nor False, of Python or NumPy.

    Raises:
      ScheduleError: it says `what` the value was given as.
    """
    if type(value).__name__ not in ("bool", "bool_"):
        raise ScheduleError(f"{what}={shown(value)} for a schedule", fix="give True or False")


def check_number(number: Any, what: str, most: int) -> None:
    """Refuses what is no int from 1 to `most`.

    Raises:
      ScheduleError: it says `what`, the number in the place of `{}`.
    """
    value = _index(number)
    if value is not None and 1 <= value <= most:
        return
    if value is None:
        said = shown(number)
    elif value.bit_length() > 256:  # Python does not print ints with thousands of digits
        said = f"2^{value.bit_length() - 1} and more"
    else:
        said = str(value)
    raise ScheduleError(what.format(said), fix=f"use at least one and at most {most:,}, as an int")


def place(stages: int, ipus: Ipus) -> Groups:
    """The IPUs of each stage, from what a user gave.

    Raises:
      ScheduleError: not one entry for every stage, or an entry that is no set of IPUs.
    """
    if ipus is None:
        return tuple((stage,) for stage in range(stages))
    entries = _entries(ipus)
    if entries is None or len(entries) != stages:
        said = shown(ipus) if entries is None else f"{len(entries)} entries of"
        raise ScheduleError(
            f"{said} `ipus` for {stages} stages", fix="give one entry for every forward stage"
        )
    return tuple(_group(stage, entry) for stage, entry in enumerate(entries))


def _group(stage: int, entry: Any) -> tuple[int, ...]:
    """The IPUs of a stage."""
    alone = _index(entry)
    members = _entries(entry) if alone is None else (alone,)
    group = tuple(ipu for ipu in map(_index, members or ()) if ipu is not None and ipu >= 0)
    if not group or members is None or len(set(group)) < len(members) or len(group) > MAX_STAGES:
        raise ScheduleError(
            f"stage {stage} on the IPUs {entry if members is None else members}",
            fix="name at least one IPU, each once, counted from 0",
        )
    return group


def _index(value: Any) -> int | None:
    """An int, of Python or NumPy; None for what is none."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except Exception:  # a deleted array raises another error than what is none
        return None


def _entries(ipus: Any) -> tuple[Any, ...] | None:
    """What is iterated, but for what is longer than anything can be; None for what cannot."""
    try:
        return tuple(itertools.islice(ipus, MAX_STAGES + 1))
    except (TypeError, RuntimeError):  # the latter of a deleted array
        return None


def check_apart(ipus: Groups, what: str, fix: str) -> None:
    """Refuses stages that share an IPU.

    Raises:
      ScheduleError: it says `what`, with the first two that do and the IPU in the place of `{}`.
    """
    owner: dict[int, int] = {}
    for stage, group in enumerate(ipus):
        for ipu in group:
            if ipu in owner:
                raise ScheduleError(what.format(owner[ipu], stage, ipu), fix=fix)
            owner[ipu] = stage
