"""A drawing of a schedule: a row for each IPU, a column for each tick, a colour for each phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowering.ground import svg
from lowering.schedules.task import Phase, Task

if TYPE_CHECKING:
    from lowering.schedules.schedule import Schedule

MAX_TICKS, MAX_ROWS = 120, 32
_ROW, _LEFT, _TOP, _WIDTH = 24, 60, 26, 900
_COLOURS = {
    Phase.FORWARD: svg.BLUE,
    Phase.BACKWARD: svg.ORANGE,
    Phase.WEIGHTS: svg.PINK,
    Phase.RECOMPUTE: svg.GREEN,
    Phase.OFFLOAD: svg.RED,
    Phase.LOAD: svg.SKY,
}
_WORDS = {
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.WEIGHTS: "gradient of weights",
    Phase.RECOMPUTE: "forward again",
    Phase.OFFLOAD: "to host memory",
    Phase.LOAD: "from host memory",
}


def draw_schedule(schedule: Schedule) -> str:
    """Draws an SVG of the first ticks and IPUs of a schedule, with the micro-batches' numbers."""
    ticks = list(schedule.ticks[:MAX_TICKS])
    layout = schedule.layout
    rows = layout.all_ipus[:MAX_ROWS]
    column = min(28.0, (_WIDTH - _LEFT) / max(len(ticks), 1))
    bottom = _TOP + _ROW * len(rows)
    width = _LEFT + max(column * len(ticks), 300)
    drawing = svg.Drawing(width, bottom + 26, f"schedule {schedule.name}")
    drawing.draw_text(0, 14, schedule.name)
    _draw_legend(drawing, schedule, _LEFT + 40)
    for row, ipu in enumerate(rows):
        top = _TOP + _ROW * row
        drawing.draw_text(0, top + 16, f"IPU {ipu}")
        drawing.draw_box(_LEFT, top, column * len(ticks), _ROW - 3, svg.FAINT, opacity=0.15)
        for tick, tasks in enumerate(ticks):
            own_tasks = [task for task in tasks if ipu in layout.ipus_of(task)]
            for part, task in enumerate(own_tasks):
                task_width = column / len(own_tasks)
                _draw_task(
                    drawing, task, tick, _LEFT + tick * column + part * task_width, top, task_width
                )
    drawing.draw_text(_LEFT, bottom + 16, _caption(schedule, len(ticks), len(rows)), faint=True)
    return str(drawing)


def _draw_task(
    drawing: svg.Drawing, task: Task, tick: int, x: float, y: float, width: float
) -> None:
    stage, phase, batch = task
    tip = f"stage {stage}, {_WORDS[phase]}, micro-batch {batch}, tick {tick}"
    shade = 1.0 if batch % 2 == 0 else 0.72
    drawing.draw_box(x, y, max(width - 1, 0.5), _ROW - 3, _COLOURS[phase], tip=tip, opacity=shade)
    if svg.width_of_text(str(batch)) < width - 4:
        ink = "#fff" if phase is Phase.FORWARD else "#000"
        drawing.draw_text(x + width / 2, y + 15, str(batch), "middle", colour=ink)


def _draw_legend(drawing: svg.Drawing, schedule: Schedule, x: float) -> None:
    for phase in dict.fromkeys(phase for phase, _ in schedule.kinds):
        drawing.draw_box(x + 60, 4, 12, 12, _COLOURS[phase])
        drawing.draw_text(x + 78, 14, _WORDS[phase])
        x += 40 + svg.width_of_text(_WORDS[phase])


def _caption(schedule: Schedule, ticks: int, rows: int) -> str:
    num_ticks, num_ipus = (
        len(schedule.ticks),
        len(schedule.layout.all_ipus),
    )
    cut_note = (
        "" if (ticks, rows) == (num_ticks, num_ipus) else f"; here {ticks} ticks of {rows} IPUs"
    )
    return f"{num_ticks} ticks, {schedule.micro_batches} micro-batches{cut_note}"
