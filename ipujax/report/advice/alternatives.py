"""Models a program under other schedules, to predict what a remedy for its pipeline would gain."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lowering import add_fifos, ir, machine, schedules

if TYPE_CHECKING:
    from ipujax.report.advice.facts import Facts


@dc.dataclass(frozen=True, slots=True)
class Alternative:
    """The modelled cost of a program under another schedule.

    Attributes:
      text: the argument or option that asks for this schedule.
      cycles: modelled cycles of a call.
      bubble_fraction: the bubble's share of the pipeline's grid of IPUs and ticks.
      fullest_bytes: bytes on the fullest tile with this schedule.
    """

    text: str
    cycles: int
    bubble_fraction: float
    fullest_bytes: int


def _builders_by_argument() -> dict[str, Callable[..., schedules.Schedule]]:
    """Returns the schedules to try: the argument that asks for each, and what builds it."""
    ranked = [
        (schedule.advice_rank, schedule)
        for schedule in schedules.list_schedules()
        if schedule.advice_rank is not None
    ]
    return {
        f"pipeline_schedule={schedule.argument}": schedule.build
        for _, schedule in sorted(ranked, key=lambda entry: entry[0])
    }


def find_faster_schedule(facts: Facts, schedule: schedules.Schedule) -> Alternative | None:
    """Finds the fastest other schedule, if it beats the present one and fits in memory.

    All are simulated with the cycles of the program's stages; only the best one is modelled.
    """
    pipeline = facts.profile.pipeline
    if pipeline is None or schedule.splits_backward or schedule.layout.between:
        return None
    transfer_cycles = (
        float(pipeline.cycles)
        - schedules.simulate(schedule, _task_cycles_by_phase(schedule, pipeline)).synced_makespan
    )
    transfer_cycles_per_tick = max(0.0, transfer_cycles) / max(len(schedule.ticks), 1)
    estimates: list[tuple[float, str, schedules.Schedule]] = []
    for text, make in _builders_by_argument().items():
        candidate = _build_similar_schedule(facts, make, schedule)
        if candidate is not None and candidate.ticks != schedule.ticks:
            simulation = schedules.simulate(candidate, _task_cycles_by_phase(candidate, pipeline))
            estimates.append(
                (
                    simulation.synced_makespan + transfer_cycles_per_tick * simulation.ticks,
                    text,
                    candidate,
                )
            )
    estimate, text, candidate = min(
        estimates, key=lambda entry: entry[0], default=(math.inf, "", schedule)
    )
    return _model_alternative(facts, candidate, text) if estimate < pipeline.cycles else None


def model_schedule_with_more_micro_batches(
    facts: Facts, schedule: schedules.Schedule, times: int
) -> Alternative | None:
    """Models the same schedule with `times` as many micro-batches of the same size, if possible."""
    for make in _builders_by_argument().values():
        rebuilt_schedule = _build_similar_schedule(facts, make, schedule)
        if rebuilt_schedule is not None and rebuilt_schedule.ticks == schedule.ticks:
            longer_schedule = _build_similar_schedule(facts, make, schedule, times)
            return longer_schedule and _model_alternative(facts, longer_schedule, times=times)
    return None  # the user's own schedule, or one that has no bubble


def _model_alternative(
    facts: Facts, schedule: schedules.Schedule, text: str = "", times: int = 1
) -> Alternative | None:
    """Models the program under a schedule; None if that is not faster, or no longer fits."""
    profile = facts.model_with_nodes(lambda node: _replace_pipeline_schedule(node, schedule))
    if profile.cycles >= times * facts.profile.cycles or profile.pipeline is None:
        return None
    if facts.profile.memory.fits and not profile.memory.fits:
        return None
    fullest_bytes = int(profile.memory.tile_peak_bytes.max())
    return Alternative(text, int(profile.cycles), profile.pipeline.bubble_fraction, fullest_bytes)


def _build_similar_schedule(
    facts: Facts, make: Callable[..., Any], template: schedules.Schedule, times: int = 1
) -> schedules.Schedule | None:
    """Builds a schedule for the same stages, `times` as many micro-batches; None if impossible."""
    options = facts.options
    try:
        return schedules.build(
            make,
            stages=template.stages,
            micro_batches=times * template.micro_batches,
            training=template.training,
            ipus=template.ipus,
            io_tiles=options.io_tiles > 0 and options.overlaps_io,
        )
    except schedules.ScheduleError:
        return None


def _task_cycles_by_phase(
    schedule: schedules.Schedule, pipeline: machine.PipelineProfile
) -> schedules.Seconds:
    """Returns the cycles of one task of each stage, by phase."""
    return {
        phase: [float(pipeline.stage_cycles[stage, phase.word]) for stage in range(pipeline.stages)]
        for phase in dict.fromkeys(phase for phase, _ in schedule.kinds)
    }


def _replace_pipeline_schedule(node: ir.Node, schedule: schedules.Schedule) -> ir.Node:
    """Returns the node; a pipeline with as many stages gets the other schedule."""
    if not isinstance(node, ir.Pipeline):
        return node
    old_schedule = node.schedule
    if (old_schedule.stages, old_schedule.ipus, old_schedule.training) != (
        schedule.stages,
        schedule.ipus,
        schedule.training,
    ):
        return node  # another pipeline
    return add_fifos(dc.replace(node, schedule=schedule))
