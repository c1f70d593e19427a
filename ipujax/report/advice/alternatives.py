"""A program under another schedule, modelled: what a remedy for its pipeline would bring."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lowering import ir, machine, schedules

if TYPE_CHECKING:
    from ipujax.report.advice.facts import Facts

_MAKERS: dict[str, Callable[..., schedules.Schedule]] = {
    "pipeline_schedule=PipelineSchedule.Grouped": schedules.grouped,
    "pipeline_schedule=PipelineSchedule.Interleaved": schedules.interleaved,
    "pipeline_schedule=ipujax.schedules.one_f_one_b": schedules.one_f_one_b,
    "pipeline_schedule=ipujax.schedules.interleaved_one_f_one_b": schedules.interleaved_one_f_one_b,
    "pipeline_schedule=ipujax.schedules.gpipe": schedules.gpipe,
}
"""How to ask for a schedule, and what makes it.

Those that split the backward pass are left out: their tasks are other ones.
"""


@dc.dataclass(frozen=True, slots=True)
class Alternative:
    """What a program would cost with another schedule.

    Attributes:
      text: how to ask for it.
      cycles: of a call.
      bubble_fraction: of its pipeline.
      fullest_bytes: what the fullest tile then holds.
    """

    text: str
    cycles: int
    bubble_fraction: float
    fullest_bytes: int


def other_schedule(facts: Facts, old: schedules.Schedule) -> Alternative | None:
    """The schedule that looks fastest, if it is faster and needs no more memory than there is.

    All are simulated with the cycles of the program's stages; only the best one is modelled.
    """
    lines = facts.profile.pipeline
    if lines is None or old.splits_backward:
        return None
    transfers = float(lines.cycles) - schedules.simulate(old, _seconds(old, lines)).synced_makespan
    each = max(0.0, transfers) / max(len(old.ticks), 1)
    estimates: list[tuple[float, str, schedules.Schedule]] = []
    for text, make in _MAKERS.items():
        new = _made(facts, make, old)
        if new is not None and new.ticks != old.ticks:
            run = schedules.simulate(new, _seconds(new, lines))
            estimates.append((run.synced_makespan + each * run.ticks, text, new))
    estimate, text, new = min(estimates, key=lambda entry: entry[0], default=(math.inf, "", old))
    return _modelled(facts, new, text) if estimate < lines.cycles else None


def more_micro_batches(facts: Facts, old: schedules.Schedule, times: int) -> Alternative | None:
    """The same schedule with `times` as many micro-batches of the same size, if it can be made."""
    for make in _MAKERS.values():
        same = _made(facts, make, old)
        if same is not None and same.ticks == old.ticks:
            new = _made(facts, make, old, times)
            return new and _modelled(facts, new, times=times)
    return None  # of the user's own, or one that has no bubble


def _modelled(
    facts: Facts, schedule: schedules.Schedule, text: str = "", times: int = 1
) -> Alternative | None:
    """None for what is not faster, or does not fit although the program as it is does."""
    other = facts.changed(lambda node: _rescheduled(node, schedule))
    if other.cycles >= times * facts.profile.cycles or other.pipeline is None:
        return None
    if facts.profile.memory.fits and not other.memory.fits:
        return None
    fullest = int(other.memory.tile_peak_bytes.max())
    return Alternative(text, int(other.cycles), other.pipeline.bubble_fraction, fullest)


def _made(
    facts: Facts, make: Callable[..., Any], like: schedules.Schedule, times: int = 1
) -> schedules.Schedule | None:
    """A schedule for the same stages and `times` as many micro-batches; None if there is none."""
    options = facts.options
    try:
        return schedules.build(
            make,
            stages=like.stages,
            micro_batches=times * like.micro_batches,
            training=like.training,
            ipus=like.ipus,
            io_tiles=options.io_tiles > 0 and options.overlaps_io,
        )
    except schedules.ScheduleError:
        return None


def _seconds(schedule: schedules.Schedule, lines: machine.PipelineProfile) -> schedules.Seconds:
    """Cycles of the tasks of each stage."""
    return {
        phase: [float(lines.stage_cycles[stage, phase.word]) for stage in range(lines.stages)]
        for phase in schedules.phases(schedule)
    }


def _rescheduled(node: ir.Node, schedule: schedules.Schedule) -> ir.Node:
    """A node; a pipeline, if it has as many stages, follows another schedule."""
    if not isinstance(node, ir.Pipeline):
        return node
    was = node.schedule
    if (was.stages, was.ipus, was.training) != (schedule.stages, schedule.ipus, schedule.training):
        return node  # another pipeline
    depths = schedules.simulate(schedule).fifo_depth
    fifos = tuple(dc.replace(fifo, depth=depths[fifo.stage]) for fifo in node.fifos)
    return dc.replace(node, schedule=schedule, fifos=fifos)
