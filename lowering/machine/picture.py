"""Memory as a drawing: for each IPU, how full its tiles are, from the fullest to the emptiest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowering import svg

if TYPE_CHECKING:
    from lowering.machine.profile import Memory

MAX_IPUS = 16
_WIDTH, _HEIGHT, _LEFT, _GAP = 600, 64, 60, 34


def picture(memory: Memory) -> str:
    """An SVG: a curve of the tiles of each IPU below the limit, which is a line."""
    peaks = np.sort(memory.tile_peak_bytes[:MAX_IPUS], axis=1)[:, ::-1]
    highest = max(int(peaks.max(initial=0)), memory.limit)
    height = len(peaks) * (_HEIGHT + _GAP) + 20
    drawing = svg.Drawing(_LEFT + _WIDTH + 130, height, "memory of the tiles")
    for number, tiles in enumerate(peaks):
        top = number * (_HEIGHT + _GAP) + 10
        drawing.words(0, top + _HEIGHT, f"IPU {number}")
        _curve(drawing, tiles, top, highest, memory.limit)
    left_out = len(memory.tile_peak_bytes) - len(peaks)
    note = f"tiles, the fullest first{f'; {left_out} more IPUs' if left_out else ''}"
    drawing.words(_LEFT, height - 8, note, faint=True)
    return str(drawing)


def _curve(drawing: svg.Drawing, tiles: np.ndarray, top: int, highest: int, limit: int) -> None:
    """At most one bar for two pixels, as high as the fullest of its tiles."""
    bars = np.array_split(tiles, min(len(tiles), _WIDTH // 2))
    width = _WIDTH / len(bars)
    bottom = top + _HEIGHT
    drawing.box(_LEFT, top, _WIDTH, _HEIGHT, svg.FAINT, opacity=0.12)
    for place, bar in enumerate(bars):
        full = int(bar.max())
        tall = _HEIGHT * full / highest
        colour = svg.BLUE if full <= limit else svg.RED
        drawing.box(
            _LEFT + place * width, bottom - tall, width, tall, colour, tip=f"{full:,} bytes"
        )
    line = bottom - _HEIGHT * limit / highest
    drawing.line(f"M{_LEFT} {line:g}H{_LEFT + _WIDTH}")
    drawing.words(_LEFT + _WIDTH + 6, line + 5, f"{limit:,} B", faint=True)
    drawing.words(_LEFT + _WIDTH + 6, bottom, f"{int(tiles[0]) / limit:.0%} full")
