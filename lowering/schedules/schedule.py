"""A schedule: what the IPUs of a pipeline do, tick by tick, as data."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence

from lowering.schedules.errors import ScheduleError
from lowering.schedules.grid import grid
from lowering.schedules.task import Phase, Task

# The IPUs of each stage as a user gives them; None puts stage i on IPU i.
Ipus = Sequence[int | Sequence[int]] | None


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
    ipus: tuple[tuple[int, ...], ...]
    ticks: tuple[tuple[Task, ...], ...]

    def __post_init__(self) -> None:
        name = self.name
        if not name.isprintable() or not name or name != name.strip() or "#" in name:
            raise ScheduleError(
                f"{name!r} as the name of a schedule", fix="use one printable line, without `#`"
            )
        check_sizes(self.stages, self.micro_batches)
        if place(self.stages, self.ipus) != self.ipus:
            raise ScheduleError(f"ipus={self.ipus!r}", fix="give a tuple of IPUs for every stage")

    @property
    def splits_backward(self) -> bool:
        """Whether gradients of inputs and of weights are tasks of their own."""
        return any(task.phase == Phase.WEIGHTS for tick in self.ticks for task in tick)

    @property
    def num_tasks(self) -> int:
        """How many tasks there are; one that runs on several IPUs counts once."""
        return sum(len(tick) for tick in self.ticks)

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


def check_sizes(stages: int, micro_batches: int) -> None:
    """Refuses pipelines without stages or micro-batches.

    Raises:
      ScheduleError: a number below one.
    """
    for number, what in ((stages, "stages"), (micro_batches, "micro-batches")):
        if number < 1:
            raise ScheduleError(f"a schedule of {number} {what}", fix="use at least one")


def place(stages: int, ipus: Ipus) -> tuple[tuple[int, ...], ...]:
    """The IPUs of each stage, from what a user gave.

    Raises:
      ScheduleError: not one entry for every stage, or an entry that is no set of IPUs.
    """
    if ipus is None:
        return tuple((stage,) for stage in range(stages))
    if len(ipus) != stages:
        raise ScheduleError(
            f"{len(ipus)} entries of `ipus` for {stages} stages",
            fix="give one entry for every forward stage",
        )
    placed = tuple((entry,) if isinstance(entry, int) else tuple(entry) for entry in ipus)
    for stage, group in enumerate(placed):
        if not group or min(group) < 0 or len(set(group)) < len(group):
            raise ScheduleError(
                f"stage {stage} on the IPUs {group}",
                fix="name at least one IPU, each once, counted from 0",
            )
    return placed


def shared_ipu(ipus: Sequence[tuple[int, ...]]) -> tuple[int, int, int] | None:
    """The first two stages that share an IPU, and that IPU; None if none do."""
    owner: dict[int, int] = {}
    for stage, group in enumerate(ipus):
        for ipu in group:
            if ipu in owner:
                return owner[ipu], stage, ipu
            owner[ipu] = stage
    return None
