"""A program under another schedule, modelled: what a remedy for its pipeline would bring."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import Any

from lowering import ir, machine, schedules

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


def other_schedule(
    program: ir.Program,
    profile: machine.Profile,
    options: machine.ModelOptions,
    old: schedules.Schedule,
) -> Alternative | None:
    """The schedule that looks fastest, if it is faster and needs no more memory than there is.

    All are simulated with the cycles of the program's stages; only the best one is modelled.
    """
    lines = profile.pipeline
    if lines is None or old.splits_backward:
        return None
    transfers = float(lines.cycles) - schedules.simulate(old, _seconds(old, lines)).synced_makespan
    each = max(0.0, transfers) / max(len(old.ticks), 1)
    found: list[tuple[float, str, schedules.Schedule]] = []
    for text, make in _MAKERS.items():
        new = _made(make, old, old.micro_batches, options)
        if new is not None and new.ticks != old.ticks:
            run = schedules.simulate(new, _seconds(new, lines))
            found.append((run.synced_makespan + each * run.ticks, text, new))
    for estimate, text, new in sorted(found, key=lambda entry: entry[0])[:1]:
        if estimate < lines.cycles:
            return _modelled(text, program, profile, options, new)
    return None


def more_micro_batches(
    program: ir.Program,
    profile: machine.Profile,
    options: machine.ModelOptions,
    old: schedules.Schedule,
    times: int,
) -> Alternative | None:
    """The same schedule with `times` as many micro-batches of the same size, if it can be made."""
    makers = (
        make
        for make in _MAKERS.values()
        if _same(_made(make, old, old.micro_batches, options), old)
    )
    make = next(makers, None)
    if make is None:  # of the user's own, or one that has no bubble
        return None
    new = _made(make, old, times * old.micro_batches, options)
    return None if new is None else _modelled("", program, profile, options, new, times)


def _same(one: schedules.Schedule | None, other: schedules.Schedule) -> bool:
    return one is not None and one.ticks == other.ticks


def _modelled(
    text: str,
    program: ir.Program,
    profile: machine.Profile,
    options: machine.ModelOptions,
    schedule: schedules.Schedule,
    times: int = 1,
) -> Alternative | None:
    """None for what is not faster, or does not fit although the program as it is does."""
    body = ir.with_nodes(program.body, lambda node: _rescheduled(node, schedule))
    other = machine.model(dc.replace(program, body=body), options)
    if other.cycles >= times * profile.cycles or other.pipeline is None:
        return None
    if profile.memory.fits and not other.memory.fits:
        return None
    fullest = int(other.memory.tile_peak_bytes.max())
    return Alternative(text, int(other.cycles), other.pipeline.bubble_fraction, fullest)


def _made(
    make: Callable[..., Any],
    like: schedules.Schedule,
    micro_batches: int,
    options: machine.ModelOptions,
) -> schedules.Schedule | None:
    """A schedule for the same stages; None if there is none."""
    try:
        return schedules.build(
            make,
            stages=like.stages,
            micro_batches=micro_batches,
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
