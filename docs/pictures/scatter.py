"""Draws the rows of docs/validation.md: predicted against measured."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from lowering import svg

PAGE = Path(__file__).parent.parent / "validation.md"
ROW = re.compile(r"^\| [^|]+ \| ([\d.e+-]+) ([\w/]+) \| ([\d.e+-]+) \| [\d.]+ \|", re.MULTILINE)
NINE_IN_TEN = re.compile(r"nine in ten are within (\d+) %")

PANELS = {
    "rates, TFLOP/s or TB/s": ("TFLOP/s", "TB/s"),
    "samples a second": ("items/s", "samples/s"),
    "cycles": ("cycles",),
    "times, seconds": ("s", "min"),  # minutes become seconds
    "memory, bytes": ("bytes",),
}
SIZE, GAP, LEFT, TOP = 150, 50, 44, 22


def read_rows(page: str) -> list[tuple[float, float, str]]:
    """Returns the measured and the predicted number of each row, and their unit."""
    rows = [(float(m), float(p), unit) for m, unit, p in ROW.findall(page)]
    return [(60 * m, 60 * p, unit) if unit == "min" else (m, p, unit) for m, p, unit in rows]


def draw_validation() -> str:
    """Draws a panel for each kind of unit, with logarithmic axes."""
    page = PAGE.read_text("utf-8")
    rows = read_rows(page)
    match = NINE_IN_TEN.search(page)
    assert match is not None
    share = int(match[1]) / 100
    drawing = svg.Drawing(2 * (SIZE + GAP), 3 * (SIZE + 52), "predicted against measured")
    for number, (title, units) in enumerate(PANELS.items()):
        points = [(m, p) for m, p, unit in rows if unit in units]
        left, top = LEFT + number % 2 * (SIZE + GAP), TOP + number // 2 * (SIZE + 52)
        _draw_panel(drawing, left, top, f"{title} ({len(points)})", points, share)
    left, top = LEFT + SIZE + GAP - 20, TOP + 2 * (SIZE + 52) + 20
    drawing.draw_box(left, top, 4, 4, svg.RED, opacity=0.8)
    drawing.draw_text(left + 12, top + 7, "a published row")
    notes = [
        "across: measured",
        "up: predicted",
        "middle line: equal",
        f"outer lines: {share:.0%} off",
    ]
    for number, note in enumerate([*notes, "both axes logarithmic"]):
        drawing.draw_text(left, top + 30 + 18 * number, note, faint=True)
    return str(drawing)


def _draw_panel(
    drawing: svg.Drawing,
    left: float,
    top: float,
    title: str,
    points: Sequence[tuple[float, float]],
    share: float,
) -> None:
    numbers = [number for point in points for number in point]
    low, high = math.floor(math.log10(min(numbers))), math.ceil(math.log10(max(numbers)))

    def place(value: float) -> float:
        return (math.log10(value) - low) / (high - low) * SIZE

    drawing.draw_text(left, top - 6, title)
    drawing.draw_box(left, top, SIZE, SIZE, svg.FAINT, opacity=0.12)
    for factor, width in ((1.0, 1.5), (1 + share, 0.7), (1 - share, 0.7)):
        shift = math.log10(factor) / (high - low) * SIZE
        begin, end = max(0.0, -shift), min(SIZE, SIZE - shift)
        drawing.draw_line(
            f"M{left + begin:.1f} {top + SIZE - begin - shift:.1f}"
            f"L{left + end:.1f} {top + SIZE - end - shift:.1f}",
            width=width,
        )
    for measured, predicted in points:
        x, y = left + place(measured), top + SIZE - place(predicted)
        drawing.draw_box(round(x - 2, 1), round(y - 2, 1), 4, 4, svg.RED, opacity=0.8)
    for power, x, y in ((low, 0, SIZE), (high, SIZE, 0)):
        drawing.draw_text(
            left + x, top + SIZE + 16, _power(power), "end" if x else "start", faint=True
        )
        drawing.draw_text(left - 4, top + y + (0 if y else 10), _power(power), "end", faint=True)


def _power(power: int) -> str:
    return f"{10**power:g}" if -2 <= power <= 3 else f"1e{power}"
