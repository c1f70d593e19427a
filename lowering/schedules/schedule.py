"""A schedule: the tasks of a pipeline's IPUs, tick by tick, as data."""

from __future__ import annotations

import dataclasses as dc
import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

from lowering.ground import limit_dir_to
from lowering.schedules.grid import grid
from lowering.schedules.layout import Layout
from lowering.schedules.needs_table import NeedsTable, check_needs_table
from lowering.schedules.schedule_errors import ScheduleError, check_instance, repr_or_type
from lowering.schedules.schedule_picture import draw_schedule
from lowering.schedules.task import PHASES_BETWEEN, Groups, Kind, Phase, Task, find_kinds_between
from lowering.schedules.ticks import Tick, Ticks, runs_of_ticks

# Larger numbers are taken for a mistake: reports have an entry for each task.
MAX_STAGES = 1024
MAX_MICRO_BATCHES = 10**7

# The IPUs of each stage as a user gives them; None puts stage i on IPU i.
Ipus = Sequence[int | Sequence[int]] | None


@limit_dir_to()
@dc.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Schedule:
    """Every task of a pipeline, in the tick in which it runs.

    `simulate` checks that the tasks are complete and in a possible order.

    Attributes:
      name: its name in texts; one line.
      stages: how many forward stages there are.
      micro_batches: how many micro-batches pass through them.
      training: whether there are backward tasks.
      ipus: the IPUs of each stage: usually one, several for concurrent stages.
      ticks: the tasks of all IPUs between two syncs, in the order in which they are dispatched.
        An IPU runs its own tasks of a tick one after the other in this order; different IPUs run
        at the same time.
      copies: where the copies of the stages are, as in bidirectional pipelines: the IPUs of each
        stage in each copy. The first is `ipus`, and by default the only one.
      copy_pattern: the copy that each micro-batch passes through; it repeats.
      segments: the parts of a sequence that are micro-batches of their own: those of numbers
        m * segments to (m + 1) * segments - 1 are one sequence. A forward task of a stage also
        waits for the one before it in its sequence, and a backward task for the one after it.
      needs_table: what forward and backward tasks wait for on other stages, where that is not the
        stage before or after: pairs of a (phase, stage) and those that it waits for, sorted, as
        `from_orders(needs=...)` makes them.
      kinds: the phase and stage of every kind of task that it has for all micro-batches: from the
        ticks.

    Raises:
      ScheduleError: numbers that are not positive, a name of several lines, or IPUs or needs that
        do not fit the stages or copies.
    """

    name: str
    stages: int
    micro_batches: int
    training: bool
    ipus: Groups
    ticks: Sequence[Tick]
    copies: tuple[Groups, ...] = ()
    copy_pattern: tuple[int, ...] = (0,)
    segments: int = 1
    needs_table: NeedsTable = ()
    kinds: tuple[Kind, ...] = dc.field(init=False)

    def __post_init__(self) -> None:
        name = self.name
        check_instance(name, str, "the name of a schedule")
        if not name.isprintable() or not name or name != name.strip() or "#" in name:
            raise ScheduleError(
                f"{name!r} as the name of a schedule", fix="use one printable line, without `#`"
            )
        check_pipeline_sizes(self.stages, self.micro_batches, self.training)
        if ipus_of_stages(self.stages, self.ipus) != self.ipus:
            raise ScheduleError(f"ipus={self.ipus!r}", fix="give a tuple of IPUs for every stage")
        if not isinstance(self.ticks, (tuple, Ticks)):
            raise ScheduleError(
                f"{type(self.ticks).__name__} as the ticks of a schedule",
                fix="give a tuple with the tuple of the tasks of each tick",
            )
        object.__setattr__(self, "copies", self.copies or (self.ipus,))
        self._check_copies()
        check_positive_int(self.segments, "{} segments of a sequence", self.micro_batches)
        check_needs_table(self.needs_table, self.stages)
        object.__setattr__(self, "kinds", self._find_kinds())

    def _find_kinds(self) -> tuple[Kind, ...]:
        """Returns the kinds that all stages have, then those of R, O and L that some have."""
        phases = [Phase.FORWARD, *[Phase.BACKWARD] * self.training]
        runs = runs_of_ticks(self.ticks)
        tasks = (task for run in runs for tick in run.ticks for task in tick)
        listed_kinds = {(phase, stage) for stage, phase, _ in tasks}
        if self.training and any(phase == Phase.WEIGHTS for phase, _ in listed_kinds):
            phases.append(Phase.WEIGHTS)
        of_all = [(phase, stage) for phase in phases for stage in range(self.stages)]
        between = find_kinds_between(listed_kinds) if self.training else ()
        rows = ((phase, stage) for phase in PHASES_BETWEEN for stage in range(self.stages))
        return (*of_all, *(kind for kind in rows if kind in between))

    def _check_copies(self) -> None:
        """Raises if the copies do not fit the stages, or the micro-batches the copies."""
        copies, pattern = self.copies, self.copy_pattern
        placed = [ipus_of_stages(self.stages, copy) for copy in copies]
        if placed != [*copies] or copies[0] != self.ipus or len(set(copies)) < len(copies):
            raise ScheduleError(
                f"copies={copies!r}",
                fix="give a tuple of placings, each a tuple of IPUs for every stage: `ipus` first, "
                "and no placing twice",
            )
        sizes = {tuple(map(len, copy)) for copy in copies}
        if len(sizes) > 1:
            raise ScheduleError(
                f"copies of stages on other numbers of IPUs: {copies!r}",
                fix="give every copy of a stage as many IPUs",
            )
        if set(pattern) != set(range(len(copies))) or len(pattern) > self.micro_batches:
            raise ScheduleError(
                f"copy_pattern={pattern!r} for {len(copies)} copies and {self.micro_batches} "
                "micro-batches",
                fix="give for each micro-batch, until that repeats, the number of its copy; every "
                "copy has some",
            )

    @property
    def layout(self) -> Layout:
        """The layout: the IPUs of the tasks, and the tasks that each of them waits for."""
        return _find_layout(
            self.micro_batches,
            self.copies,
            self.copy_pattern,
            self.segments,
            find_kinds_between(self.kinds),
            self.needs_table,
        )

    @property
    def is_plain(self) -> bool:
        """True if stages have no copies, wait for their neighbours, and sequences are whole."""
        return len(self.copies) == 1 and self.segments == 1 and not self.needs_table

    def copy_of(self, micro_batch: int) -> int:
        """Returns the number of the copy that a micro-batch passes through."""
        return self.layout.copy_of(micro_batch)

    def needs(self, task: Task) -> tuple[Task, ...]:
        """Returns the tasks whose results a task waits for."""
        return self.layout.needs(task)

    @property
    def splits_backward(self) -> bool:
        """True if gradients of inputs and of weights are separate tasks."""
        return (Phase.WEIGHTS, 0) in self.kinds

    @property
    def last_phase(self) -> Phase:
        """The phase after which a stage keeps nothing of a micro-batch."""
        if not self.training:
            return Phase.FORWARD
        return Phase.WEIGHTS if self.splits_backward else Phase.BACKWARD

    @property
    def num_tasks(self) -> int:
        """The number of tasks; one that runs on several IPUs counts once."""
        return sum(run.times * sum(map(len, run.ticks)) for run in runs_of_ticks(self.ticks))

    def _repr_html_(self) -> str:
        """Returns a drawing, for notebooks."""
        return draw_schedule(self)

    def __str__(self) -> str:
        return f"{self._describe_in_one_line()}\n{grid(self)}"

    def __repr__(self) -> str:
        return f"<Schedule {self._describe_in_one_line()}>"

    def _describe_in_one_line(self) -> str:
        kind = "training" if self.training else "inference"
        return (
            f"{self.name}: {self.stages} stages, {self.micro_batches} micro-batches, {kind}, "
            f"{len(self.ticks)} ticks"
        )


@functools.lru_cache(maxsize=256)
def _find_layout(
    micro_batches: int,
    copies: tuple[Groups, ...],
    copy_pattern: tuple[int, ...],
    segments: int,
    between: frozenset[Kind],
    needs_table: NeedsTable,
) -> Layout:
    """Returns a layout; that of equal schedules is made once, as it keeps what it derives."""
    return Layout(
        micro_batches=micro_batches,
        copies=copies,
        copy_pattern=copy_pattern,
        segments=segments,
        between=between,
        needs_table=needs_table,
    )


def check_pipeline_sizes(stages: int, micro_batches: int, training: bool) -> None:
    """Raises if no pipeline has these numbers of stages and micro-batches.

    Raises:
      ScheduleError: a number that is no int, below one, or above `MAX_STAGES` or
        `MAX_MICRO_BATCHES`; or `training` is neither True nor False.
    """
    check_boolean(training, "training")
    check_positive_int(stages, "a schedule of {} stages", MAX_STAGES)
    check_positive_int(micro_batches, "a schedule of {} micro-batches", MAX_MICRO_BATCHES)


def check_boolean(value: Any, argument_name: str) -> None:
    """Raises if a value is neither True nor False, of Python or NumPy.

    Raises:
      ScheduleError: it names the argument.
    """
    if type(value).__name__ not in ("bool", "bool_"):
        raise ScheduleError(
            f"{argument_name}={repr_or_type(value)} for a schedule", fix="give True or False"
        )


def check_positive_int(number: Any, message: str, maximum: int) -> None:
    """Raises if a number is no int from 1 to `maximum`.

    Raises:
      ScheduleError: the `message`, with the number in place of `{}`.
    """
    value = _as_int(number)
    if value is not None and 1 <= value <= maximum:
        return
    if value is None:
        number_text = repr_or_type(number)
    elif value.bit_length() > 256:  # Python does not print ints with thousands of digits
        number_text = f"2^{value.bit_length() - 1} and more"
    else:
        number_text = str(value)
    raise ScheduleError(
        message.format(number_text), fix=f"use at least one and at most {maximum:,}, as an int"
    )


def ipus_of_stages(stages: int, ipus: Ipus) -> Groups:
    """Returns the IPUs of each stage, from a user's argument.

    Raises:
      ScheduleError: the entries do not fit the stages, or one is no set of IPUs.
    """
    if ipus is None:
        return tuple((stage,) for stage in range(stages))
    entries = _read_entries(ipus)
    if entries is None or len(entries) != stages:
        given_text = repr_or_type(ipus) if entries is None else f"{len(entries)} entries of"
        raise ScheduleError(
            f"{given_text} `ipus` for {stages} stages", fix="give one entry for every forward stage"
        )
    return tuple(_ipus_of_stage(stage, entry) for stage, entry in enumerate(entries))


def _ipus_of_stage(stage: int, entry: Any) -> tuple[int, ...]:
    """Returns the IPUs of a stage."""
    single_ipu = _as_int(entry)
    members = _read_entries(entry) if single_ipu is None else (single_ipu,)
    group = tuple(ipu for ipu in map(_as_int, members or ()) if ipu is not None and ipu >= 0)
    if not group or members is None or len(set(group)) < len(members) or len(group) > MAX_STAGES:
        raise ScheduleError(
            f"stage {stage} on the IPUs {entry if members is None else members}",
            fix="name at least one IPU, each once, counted from 0",
        )
    return group


def _as_int(value: Any) -> int | None:
    """Returns an int, of Python or NumPy; None for other values."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except Exception:  # a deleted array raises another error than other values
        return None


def _read_entries(ipus: Any) -> tuple[Any, ...] | None:
    """Returns the entries of an iterable, cut at the longest possible; None for other values."""
    try:
        return tuple(itertools.islice(ipus, MAX_STAGES + 1))
    except (TypeError, RuntimeError):  # the latter of a deleted array
        return None


def check_distinct_ipus(ipus: Groups, message: str, fix: str) -> None:
    """Raises if stages share an IPU.

    Raises:
      ScheduleError: the `message`, with the first two stages and the IPU in place of `{}`.
    """
    stage_of_ipu: dict[int, int] = {}
    for stage, group in enumerate(ipus):
        for ipu in group:
            if ipu in stage_of_ipu:
                raise ScheduleError(message.format(stage_of_ipu[ipu], stage, ipu), fix=fix)
            stage_of_ipu[ipu] = stage
