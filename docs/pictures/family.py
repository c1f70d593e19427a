"""Pictures of the schedules: what each costs, and what IPUs do in some of them."""

from __future__ import annotations

import dataclasses as dc

from diagrams import WIDTH

from ipujax import schedules
from ipujax.schedules import Phase, Schedule, ScheduleError, Task
from lowering import svg
from lowering.schedules import times_of_tasks

IPUS, MICRO_BATCHES = 4, 8
SHOWN = (
    "gpipe", "one_f_one_b", "zero_bubble_h1",
    "interleaved_one_f_one_b", "zbv", "v_min",
)  # fmt: skip
_COLOURS = {Phase.FORWARD: svg.BLUE, Phase.BACKWARD: svg.ORANGE, Phase.WEIGHTS: svg.PINK}
_LEFT, _ROW = 46, 16


@dc.dataclass(frozen=True)
class Timed:
    """A schedule of some IPUs, on each of which F, B and W of a micro-batch take 1 each.

    Attributes:
      schedule: it; where an IPU has several stages, they share the times.
      tasks: each task with its IPU, start and end.
    """

    schedule: Schedule
    tasks: tuple[tuple[Task, int, float, float], ...]

    @property
    def end(self) -> float:
        """The time of the last task's end."""
        return max(end for _, _, _, end in self.tasks)

    @property
    def idle(self) -> float:
        """The share of the time in which IPUs have nothing to do."""
        return 1 - 3 * self.schedule.micro_batches / self.end

    @property
    def memory(self) -> float:
        """The most micro-batches that an IPU holds, of its share of the model."""
        run = schedules.simulate(self.schedule)
        return max(run.in_flight_per_ipu) * IPUS / self.schedule.stages

    @property
    def transfers(self) -> float:
        """How many results go to another IPU, for each micro-batch."""
        ipus = {(task.stage, task.micro_batch): ipu for task, ipu, _, _ in self.tasks}
        moves = [ipus.get((stage + 1, number), ipu) != ipu for (stage, number), ipu in ipus.items()]
        return 2 * sum(moves) / self.schedule.micro_batches


def time_schedule(name: str, micro_batches: int = MICRO_BATCHES) -> Timed | None:
    """Returns a schedule with the times of its tasks; None where it does not have the numbers."""
    for stages in (IPUS, 2 * IPUS):
        try:
            schedule = schedules.build(
                name, stages=stages, micro_batches=micro_batches, training=True
            )
        except ScheduleError:
            continue
        if len(set(schedule.ipus)) == IPUS:
            return Timed(schedule, _times_of_tasks(schedule))
    return None


def _times_of_tasks(schedule: Schedule) -> tuple[tuple[Task, int, float, float], ...]:
    """Returns each task with its IPU, start and end, if it starts as soon as it can."""
    durations = {(phase, stage): 1 for phase in Phase for stage in range(schedule.stages)}
    if not schedule.splits_backward:
        durations |= {(Phase.BACKWARD, stage): 2 for stage in range(schedule.stages)}
    unit = IPUS / schedule.stages
    timed = times_of_tasks(schedule, durations, [0] * (schedule.stages - 1))
    return tuple(
        (task, schedule.ipus[task.stage][0], start * unit, end * unit) for task, start, end in timed
    )


def draw_costs() -> str:
    """Draws what each schedule costs: idle time, memory and transfers."""
    ours = filter(schedules.__all__.__contains__, schedules.names())  # others may be registered
    timed = {name: time_schedule(name) for name in ours}
    rows = sorted(
        ((name, each.idle, each.memory, each.transfers) for name, each in timed.items() if each),
        key=lambda row: row[1:],
    )
    drawing = svg.Drawing(WIDTH, 44 + 20 * len(rows), "idle time, memory and transfers")
    columns = (("idle", svg.ORANGE, 1.0), ("memory", svg.BLUE, 8.0), ("transfers", svg.GREEN, 14.0))
    for number, (title, _, _) in enumerate(columns):
        drawing.draw_text(176 + 76 * number, 14, title, faint=True)
    for number, (name, *values) in enumerate(rows):
        top = 24 + 20 * number
        drawing.draw_text(0, top + 13, name)
        for place, (value, (_, colour, most)) in enumerate(zip(values, columns, strict=True)):
            left = 176 + 76 * place
            drawing.draw_box(left, top, 70 * min(value / most, 1), 17, colour, opacity=0.4)
            text = f"{value:.1%}" if place == 0 else f"{value:g}"
            drawing.draw_text(left + 4, top + 13, text)
    drawing.draw_text(
        0, 38 + 20 * len(rows), f"{IPUS} IPUs, {MICRO_BATCHES} micro-batches, F = B = W", faint=True
    )
    return str(drawing)


def draw_grids() -> str:
    """Draws what four IPUs do in some schedules."""
    height = 26 + IPUS * _ROW
    drawing = svg.Drawing(WIDTH, height * len(SHOWN), "what four IPUs do in some schedules")
    shown = {name: time_schedule(name, 4) for name in SHOWN}
    scale = (WIDTH - _LEFT) / max(each.end for each in shown.values() if each)
    for number, (name, timed) in enumerate(shown.items()):
        if timed:
            drawing.draw_text(0, height * number + 14, name)
            _draw_grid(drawing, timed, height * number + 20, scale)
    return str(drawing)


def _draw_grid(drawing: svg.Drawing, timed: Timed, top: float, scale: float) -> None:
    for ipu in range(IPUS):
        y = top + ipu * _ROW
        drawing.draw_text(0, y + 12, f"IPU {ipu}", faint=True)
        drawing.draw_box(_LEFT, y, scale * timed.end, _ROW - 2, svg.FAINT, opacity=0.15)
    for task, ipu, start, end in timed.tasks:
        left, width = _LEFT + scale * start, scale * (end - start) - 1
        second = task.stage >= IPUS
        drawing.draw_box(
            left,
            top + ipu * _ROW,
            width,
            _ROW - 2,
            _COLOURS[task.phase],
            opacity=0.6 + 0.4 * second,
        )
        if width > 8:
            ink = "#fff" if task.phase is Phase.FORWARD and second else "currentColor"
            drawing.draw_text(
                left + width / 2, top + ipu * _ROW + 12, str(task.micro_batch), "middle", colour=ink
            )
