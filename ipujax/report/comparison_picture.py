"""Draws a comparison: for each row a bar of cycles and a bar of the fullest tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ipujax.ground import format_duration
from lowering import svg

_ROW, _LEFT, _BAR, _TOP = 26, 190, 260, 40


class Bar(NamedTuple):
    """One row of the drawing.

    Attributes:
      label: the row's label.
      seconds: the time of a call; None if there is no program.
      filled: the fullest tile's bytes as a share of the limit.
    """

    label: str
    seconds: float | None
    filled: float | None


def draw_comparison(name: str, bars: Sequence[Bar]) -> str:
    """Draws an SVG with two columns, the time of a call and the fullest tile."""
    memory_column = _LEFT + _BAR + 90
    drawing = svg.Drawing(
        memory_column + _BAR + 60, _TOP + _ROW * len(bars) + 6, f"comparison of {name}"
    )
    drawing.draw_text(0, 14, name)
    drawing.draw_text(_LEFT, 30, "time of a call", faint=True)
    drawing.draw_text(memory_column, 30, "fullest tile, of what it may hold", faint=True)
    longest = max((bar.seconds or 0 for bar in bars), default=0) or 1
    fullest = max(1.0, *(bar.filled or 0 for bar in bars)) if bars else 1.0
    for number, bar in enumerate(bars):
        y = _TOP + number * _ROW
        drawing.draw_text(0, y + 15, bar.label)
        if bar.seconds is None or bar.filled is None:
            drawing.draw_text(_LEFT, y + 15, "no such program", faint=True)
            continue
        time_width = _BAR * bar.seconds / longest
        drawing.draw_box(_LEFT, y, time_width, _ROW - 5, svg.BLUE)
        drawing.draw_text(_LEFT + time_width + 6, y + 15, format_duration(bar.seconds), faint=True)
        memory_width = _BAR * bar.filled / fullest
        drawing.draw_box(
            memory_column, y, memory_width, _ROW - 5, svg.GREEN if bar.filled <= 1 else svg.RED
        )
        drawing.draw_text(memory_column + memory_width + 6, y + 15, f"{bar.filled:.0%}", faint=True)
    limit = memory_column + _BAR / fullest
    drawing.draw_line(f"M{limit:g} {_TOP - 4}v{_ROW * len(bars)}")
    return str(drawing)
