"""Drawings of schedules as text: a row for each IPU, a column for each tick."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from lowering.schedules.layout import Layout
from lowering.schedules.schedule_errors import ScheduleError, check_instance, repr_or_type
from lowering.schedules.task import Task

if TYPE_CHECKING:
    from lowering.schedules.schedule import Schedule

WIDTH = 100
MAX_ROWS = 24
NOWHERE = -1  # the row of tasks whose stage does not exist


def grid(schedule: Schedule, first: int = 0, last: int | None = None) -> str:
    """Draws the ticks `first` to `last` (not included; None for all to the end).

    A cell holds the tasks of the IPU in the tick, in order: `B1+F3` is the backward pass of
    micro-batch 1, then the forward pass of micro-batch 3; `.` is nothing. Where an IPU has several
    stages, the stage comes first: `2F3`. If there is no room for all, the middle is left out.
    """
    if not hasattr(schedule, "ticks"):
        raise ScheduleError(
            f"cannot draw {repr_or_type(schedule)}: it is not a schedule", fix="give a Schedule"
        )
    check_instance(first, int, "the first tick")
    if last is not None:
        check_instance(last, int, "the last tick")
    end = len(schedule.ticks) if last is None else min(last, len(schedule.ticks))
    return draw_grid(schedule.layout, schedule.ticks, first, end)


def draw_grid(
    layout: Layout,
    ticks: Sequence[Sequence[Task]],
    first: int,
    last: int,
    marked_tasks: Collection[tuple[int, Task]] = (),
) -> str:
    """Draws parts of a schedule as `grid` does, even a broken one, and marks tasks with `>`.

    Tasks of stages that do not exist are in a row `?`.
    """
    columns = range(max(first, 0), last)
    # No column is narrower than two characters and a space, so more columns cannot be shown.
    candidates = _leave_out_middle(columns, WIDTH // 3)
    stages_and_ipus = {
        (s, ipu) for copy in layout.copies for s, group in enumerate(copy) for ipu in group
    }
    stages_of = Counter(ipu for _, ipu in stages_and_ipus)
    cells = {
        tick: _cells_of_tick(
            layout, stages_of, ticks[tick], {task for at, task in marked_tasks if at == tick}
        )
        for tick in candidates
        if tick is not None
    }
    texts = (text for column in cells.values() for text in column.values())
    width = max([2, len(str(last)), *map(len, texts)])
    visible_ticks = _leave_out_middle(columns, (WIDTH - 8) // (width + 1))
    rows = sorted(stages_of) + ([NOWHERE] if any(NOWHERE in c for c in cells.values()) else [])
    lines = [_format_row("tick", ["..." if t is None else str(t) for t in visible_ticks], width)]
    for row in _leave_out_middle(rows, MAX_ROWS):
        if row is None:
            lines.append("...")
            continue
        label = "?" if row == NOWHERE else f"IPU {row}"
        texts = ["..." if t is None else cells[t].get(row, ".") for t in visible_ticks]
        lines.append(_format_row(label, texts, width))
    return "\n".join(lines)


def _leave_out_middle(items: Sequence[int], max_items: int) -> list[int | None]:
    """Returns at most `max_items` items: the first and the last ones, with None between."""
    if len(items) <= max_items:
        return list(items)
    head = max_items // 2
    return [*items[:head], None, *items[len(items) - (max_items - head - 1) :]]


def _cells_of_tick(
    layout: Layout, stages_of: Mapping[int, int], tasks: Sequence[Task], marked_tasks: set[Task]
) -> dict[int, str]:
    """Returns the text of each IPU's cell in one tick."""
    cells: dict[int, str] = {}
    for task in tasks:
        exists = 0 <= task.stage < layout.stages
        for ipu in layout.ipus_of(task) if exists else (NOWHERE,):
            is_short = exists and stages_of[ipu] == 1
            text = f"{task.phase}{task.micro_batch}" if is_short else str(task)
            text = f">{text}" if task in marked_tasks else text
            cells[ipu] = f"{cells[ipu]}+{text}" if ipu in cells else text
    return cells


def _format_row(label: str, cells: list[str], width: int) -> str:
    return (f"{label:<7}" + "".join(f" {cell:<{width}}" for cell in cells)).rstrip()
