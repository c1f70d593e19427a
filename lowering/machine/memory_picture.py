"""A drawing of memory: for each IPU, how full its tiles are, from the fullest to the emptiest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowering.ground import svg

if TYPE_CHECKING:
    from lowering.machine.profile import Memory

MAX_IPUS = 16
_WIDTH, _HEIGHT, _LEFT, _GAP = 600, 64, 60, 34


def draw_memory(memory: Memory) -> str:
    """Draws an SVG: a curve of the tiles of each IPU below the limit, which is a line."""
    peaks = np.sort(memory.tile_peak_bytes[:MAX_IPUS], axis=1)[:, ::-1]
    highest = max(int(peaks.max(initial=0)), memory.limit)
    height = len(peaks) * (_HEIGHT + _GAP) + 20
    drawing = svg.Drawing(_LEFT + _WIDTH + 130, height, "memory of the tiles")
    for number, tiles in enumerate(peaks):
        top = number * (_HEIGHT + _GAP) + 10
        drawing.draw_text(0, top + _HEIGHT, f"IPU {number}")
        _draw_tile_curve(drawing, tiles, top, highest, memory.limit)
    left_out = len(memory.tile_peak_bytes) - len(peaks)
    note = f"tiles, the fullest first{f'; {left_out} more IPUs' if left_out else ''}"
    drawing.draw_text(_LEFT, height - 8, note, faint=True)
    return str(drawing)


def _draw_tile_curve(
    drawing: svg.Drawing, tiles: np.ndarray, top: int, highest: int, limit: int
) -> None:
    """Draws at most one bar for two pixels, as high as the fullest of its tiles."""
    bars = np.array_split(tiles, min(len(tiles), _WIDTH // 2))
    width = _WIDTH / len(bars)
    bottom = top + _HEIGHT
    drawing.draw_box(_LEFT, top, _WIDTH, _HEIGHT, svg.FAINT, opacity=0.12)
    for position, bar in enumerate(bars):
        full = int(bar.max())
        tall = _HEIGHT * full / highest
        colour = svg.BLUE if full <= limit else svg.RED
        drawing.draw_box(
            _LEFT + position * width, bottom - tall, width, tall, colour, tip=f"{full:,} bytes"
        )
    line = bottom - _HEIGHT * limit / highest
    drawing.draw_line(f"M{_LEFT} {line:g}H{_LEFT + _WIDTH}")
    drawing.draw_text(_LEFT + _WIDTH + 6, line + 5, f"{limit:,} B", faint=True)
    drawing.draw_text(_LEFT + _WIDTH + 6, bottom, f"{int(tiles[0]) / limit:.0%} full")
