"""The playground of schedules: a page on which one moves sliders and sees what schedules do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipujax.ground import Checks, files
from ipujax.report.presentation.playground_page import (
    PlaygroundPage,
    list_ported_names,
    render_playground,
    tabulate,
)
from lowering import machine, schedules

_BESIDE = ("one_f_one_b", "zero_bubble_h1")  # what a given schedule is first shown beside
_TABLE_STAGES, _TABLE_MICRO_BATCHES = 8, 16  # up to which schedules of users are in the page
_MOST_MICRO_BATCHES = 512  # of a program that are shown
_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))

_check = Checks(schedules.ScheduleError, schedules.ScheduleError)


@_check.guard
def playground(
    path: str | Path | None = None, schedule: schedules.Schedule | str | None = None
) -> PlaygroundPage:
    """Makes a page with sliders for the numbers and times of a pipeline, and all schedules.

    The page is one file that needs no server and no network: it simulates exactly as
    `schedules.simulate` does. Schedules that you have registered are in it for up to 8 stages and
    16 micro-batches.

    Args:
      path: the file to write; None writes none.
      schedule: what the page shows first: one of yours, for training and with one IPU for each
        stage, or the name of a registered one; None shows some known ones.

    Returns:
      The text of the page, which notebooks show as the page.

    Raises:
      ScheduleError: a schedule that no pipeline can follow, for inference, or with several IPUs
        for a stage; an unknown name.
      OSError: a file that cannot be written.
    """
    if path is not None:
        _check.require_path(path, "where to write the playground")
    tables = _tabulate_registered()
    start: dict[str, Any] = {}
    if isinstance(schedule, str):
        name = schedules.find_registered_schedule(schedule).name
        start = {"schedules": [*dict.fromkeys([name, *_BESIDE])]}
    elif schedule is not None:
        tables.append(_tabulate_given(schedule))
        start = {
            "stages": schedule.stages // tables[-1]["perIpu"],
            "microBatches": schedule.micro_batches,
            "schedules": [tables[-1]["name"], *_BESIDE],
        }
    page = render_playground(start, tables=tables)
    if path is not None:
        files.write_text(path, page)
    return page


def playground_of_pipeline(
    name: str, pipeline: machine.PipelineProfile, clock_hz: float
) -> PlaygroundPage:
    """Makes the page of a pipeline: it opens with the times of its stages.

    Args:
      name: the name of the program.
      pipeline: its profile.
      clock_hz: cycles in a second.
    """
    spelled = schedules.spell_schedule_name(pipeline.schedule)
    known = [
        entry.name
        for entry in schedules.list_schedules()
        if schedules.spell_schedule_name(entry.name) == spelled
    ]
    start = {
        "stages": pipeline.stages // _stages_per_ipu(pipeline.stage_ipus),
        "microBatches": min(pipeline.micro_batches, _MOST_MICRO_BATCHES),
        "schedules": [*dict.fromkeys([*known, *_BESIDE])],
        "own": True,
    }
    return render_playground(
        start,
        tables=_tabulate_registered(),
        model=_times_of_stages(name, pipeline, clock_hz),
    )


def _tabulate_registered() -> list[dict[str, Any]]:
    """Returns the tables of registered schedules that the page cannot make, for small numbers."""
    others = [
        entry for entry in schedules.list_schedules() if entry.name not in list_ported_names()
    ]
    return [tabulate(entry.name, _build_small(entry)) for entry in others]


def _build_small(entry: schedules.RegisteredSchedule) -> list[schedules.Schedule]:
    """Returns a schedule for all small numbers that it has and the page can show."""
    found: list[schedules.Schedule] = []
    for stages in range(1, _TABLE_STAGES + 1):
        for micro_batches in range(1, _TABLE_MICRO_BATCHES + 1):
            try:
                schedule = entry.build(stages, micro_batches)
                _check_can_be_shown(schedule)
            except schedules.ScheduleError:  # it does not have these numbers
                continue
            found.append(schedule)
    return found


def _tabulate_given(schedule: schedules.Schedule) -> dict[str, Any]:
    """Returns the table of one schedule."""
    _check.require_instance(
        schedule,
        schedules.Schedule,
        "the schedule of the playground",
        "a Schedule, or the name of one",
    )
    schedules.simulate(schedule)
    _check_can_be_shown(schedule)
    taken = {entry.name for entry in schedules.list_schedules()}
    name = f"{schedule.name} (given)" if schedule.name in taken else schedule.name
    return tabulate(name, [schedule])


def _check_can_be_shown(schedule: schedules.Schedule) -> None:
    """Raises if the page cannot show a schedule.

    Raises:
      ScheduleError: inference, or a stage on several IPUs.
    """
    if not schedule.training:
        raise schedules.ScheduleError(
            f"the playground of {schedule.name}, a schedule for inference: it shows training",
            fix="make the schedule with training=True",
        )
    if any(len(group) > 1 for group in schedule.ipus):
        raise schedules.ScheduleError(
            f"the playground of {schedule.name}, whose stages are on the IPUs {schedule.ipus}",
            fix="give every stage one IPU",
        )


def _stages_per_ipu(ipus: Sequence[Sequence[int]]) -> int:
    """Returns how many stages each IPU has; 1 where they have different numbers."""
    counts = set(Counter(map(tuple, ipus)).values())
    return counts.pop() if len(counts) == 1 else 1


def _times_of_stages(
    name: str, pipeline: machine.PipelineProfile, clock_hz: float
) -> dict[str, Any]:
    """Returns the times of each stage's tasks in a unit in which they can be read."""
    cycles: dict[str, list[float]] = {
        key: [pipeline.stage_cycles.get((stage, word), 0) for stage in range(pipeline.stages)]
        for key, word in (("forward", "fwd"), ("backward", "bwd"), ("weight", "wgt"))
    }
    about = f"Of {name}: the machine model's times of its stages"
    if not any(cycles["weight"]):
        halves = [half / 2 for half in cycles["backward"]]
        cycles["backward"] = cycles["weight"] = halves
        about += ", half of a backward pass each for B and W"
    if pipeline.micro_batches > _MOST_MICRO_BATCHES:
        about += f", with {_MOST_MICRO_BATCHES} of its {pipeline.micro_batches:,} micro-batches"
    longest = max(cycles["forward"] + cycles["backward"]) / clock_hz
    unit, size = next((each for each in _UNITS if each[1] <= longest), _UNITS[-1])
    times = {key: [n / clock_hz / size for n in row] for key, row in cycles.items()}
    return {**times, "unit": unit, "about": f"{about}, in {unit}."}
