"""Draws small charts of a number from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_WIDTH, _HEIGHT, _EDGE = 220, 40, 5


def draw_sparkline(values: Sequence[float], description: str) -> str:
    """Draws a line through values, oldest left, with a dot at the last; only a dot for one value.

    The lowest value is at the lower edge and the highest at the upper one.

    Args:
      values: one or more.
      description: a text for those who cannot see the chart.
    """
    lowest, highest = min(values), max(values)
    indices = range(len(values))
    x = [
        _EDGE + (_WIDTH - 2 * _EDGE) * (i / max(indices[-1], 1) if indices[-1] else 1)
        for i in indices
    ]
    y = [
        _HEIGHT / 2
        if highest == lowest
        else _EDGE + (_HEIGHT - 2 * _EDGE) * (highest - v) / (highest - lowest)
        for v in values
    ]
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    line = f'<polyline points="{points}"/>' if len(values) > 1 else ""
    return (
        f'<svg class="sparkline" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(description)}"><title>{escape(description)}</title>{line}'
        f'<circle cx="{x[-1]:.1f}" cy="{y[-1]:.1f}" r="3.5"/></svg>'
    )
