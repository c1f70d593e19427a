"""Rows of a comparison as a drawing: a bar of cycles, and one of the fullest tile, for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ipujax.report.words import duration
from lowering import svg

_ROW, _LEFT, _BAR, _TOP = 26, 190, 260, 40


class Bar(NamedTuple):
    """One row.

    Attributes:
      label: what it is.
      seconds: of a call; None if there is no program.
      filled: the fullest tile's share of what it may hold.
    """

    label: str
    seconds: float | None
    filled: float | None


def picture(name: str, bars: Sequence[Bar]) -> str:
    """An SVG with two columns, the time of a call and the fullest tile."""
    right = _LEFT + _BAR + 90
    drawing = svg.Drawing(right + _BAR + 60, _TOP + _ROW * len(bars) + 6, f"comparison of {name}")
    drawing.words(0, 14, name)
    drawing.words(_LEFT, 30, "time of a call", faint=True)
    drawing.words(right, 30, "fullest tile, of what it may hold", faint=True)
    longest = max((bar.seconds or 0 for bar in bars), default=0) or 1
    fullest = max(1.0, *(bar.filled or 0 for bar in bars)) if bars else 1.0
    for number, bar in enumerate(bars):
        y = _TOP + number * _ROW
        drawing.words(0, y + 15, bar.label)
        if bar.seconds is None or bar.filled is None:
            drawing.words(_LEFT, y + 15, "no such program", faint=True)
            continue
        long = _BAR * bar.seconds / longest
        drawing.box(_LEFT, y, long, _ROW - 5, svg.BLUE)
        drawing.words(_LEFT + long + 6, y + 15, duration(bar.seconds), faint=True)
        full = _BAR * bar.filled / fullest
        drawing.box(right, y, full, _ROW - 5, svg.GREEN if bar.filled <= 1 else svg.RED)
        drawing.words(right + full + 6, y + 15, f"{bar.filled:.0%}", faint=True)
    limit = right + _BAR / fullest
    drawing.line(f"M{limit:g} {_TOP - 4}v{_ROW * len(bars)}")
    return str(drawing)
