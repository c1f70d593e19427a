"""Schedules drawn for humans: a row for each IPU, a column for each tick."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from lowering.schedules.errors import ScheduleError, check_is, shown
from lowering.schedules.task import Groups, Task

if TYPE_CHECKING:
    from lowering.schedules.schedule import Schedule

WIDTH = 100
MAX_ROWS = 24
NOWHERE = -1  # the row of tasks whose stage does not exist


def grid(schedule: Schedule, first: int = 0, last: int | None = None) -> str:
    """Draws the ticks `first` to `last` (not included; None for all to the end).

    A cell holds what the IPU runs in the tick, in order: `B1+F3` is the backward pass of
    micro-batch 1, then the forward pass of micro-batch 3; `.` is nothing. Where an IPU has several
    stages, the stage comes first: `2F3`. What is too wide or too high is left out in the middle.
    """
    if not hasattr(schedule, "ticks"):
        raise ScheduleError(f"{shown(schedule)} as a schedule to draw", fix="give a Schedule")
    check_is(first, int, "the first tick")
    if last is not None:
        check_is(last, int, "the last tick")
    end = len(schedule.ticks) if last is None else min(last, len(schedule.ticks))
    return draw(schedule.ipus, schedule.ticks, first, end)


def draw(
    ipus: Groups,
    ticks: Sequence[Sequence[Task]],
    first: int,
    last: int,
    marked: Collection[tuple[int, Task]] = (),
) -> str:
    """As `grid`, of the parts of a schedule, even a broken one; `marked` (tick, task)s get a `>`.

    Tasks of stages that do not exist are in a row `?`.
    """
    columns = range(max(first, 0), last)
    # No column is narrower than two characters and a space: what more there is cannot be shown.
    candidates = _middle_out(columns, WIDTH // 3)
    stages_of = Counter(ipu for group in ipus for ipu in group)
    cells = {
        tick: _cells(ipus, stages_of, ticks[tick], {task for at, task in marked if at == tick})
        for tick in candidates
        if tick is not None
    }
    texts = (text for column in cells.values() for text in column.values())
    width = max([2, len(str(last)), *map(len, texts)])
    shown = _middle_out(columns, (WIDTH - 8) // (width + 1))
    rows = sorted(stages_of) + ([NOWHERE] if any(NOWHERE in c for c in cells.values()) else [])
    lines = [_line("tick", ["..." if t is None else str(t) for t in shown], width)]
    for row in _middle_out(rows, MAX_ROWS):
        if row is None:
            lines.append("...")
            continue
        label = "?" if row == NOWHERE else f"IPU {row}"
        texts = ["..." if t is None else cells[t].get(row, ".") for t in shown]
        lines.append(_line(label, texts, width))
    return "\n".join(lines)


def _middle_out(items: Sequence[int], most: int) -> list[int | None]:
    """At most `most` items: the first and the last ones, with None for those in the middle."""
    if len(items) <= most:
        return list(items)
    head = most // 2
    return [*items[:head], None, *items[len(items) - (most - head - 1) :]]


def _cells(
    ipus: Groups, stages_of: Mapping[int, int], tasks: Sequence[Task], marked: set[Task]
) -> dict[int, str]:
    """What each IPU runs in one tick, as text; `stages_of` says how many stages each has."""
    cells: dict[int, str] = {}
    for task in tasks:
        known = 0 <= task.stage < len(ipus)
        for ipu in ipus[task.stage] if known else (NOWHERE,):
            short = known and stages_of[ipu] == 1
            text = f"{task.phase}{task.micro_batch}" if short else str(task)
            text = f">{text}" if task in marked else text
            cells[ipu] = f"{cells[ipu]}+{text}" if ipu in cells else text
    return cells


def _line(label: str, cells: list[str], width: int) -> str:
    return (f"{label:<7}" + "".join(f" {cell:<{width}}" for cell in cells)).rstrip()
