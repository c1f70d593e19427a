"""Small drawings of how a number went from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_WIDTH, _HEIGHT, _EDGE = 220, 40, 5


def sparkline(values: Sequence[float], said: str) -> str:
    """A line through values, the oldest left, with a dot at the last; a dot alone for one of them.

    The lowest value is at the lower edge and the highest at the upper one.

    Args:
      values: one or more.
      said: what it shows, for those who do not see it.
    """
    low, high = min(values), max(values)
    places = range(len(values))
    x = [
        _EDGE + (_WIDTH - 2 * _EDGE) * (i / max(places[-1], 1) if places[-1] else 1) for i in places
    ]
    y = [
        _HEIGHT / 2 if high == low else _EDGE + (_HEIGHT - 2 * _EDGE) * (high - v) / (high - low)
        for v in values
    ]
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    line = f'<polyline points="{points}"/>' if len(values) > 1 else ""
    return (
        f'<svg class="sparkline" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(said)}"><title>{escape(said)}</title>{line}'
        f'<circle cx="{x[-1]:.1f}" cy="{y[-1]:.1f}" r="3.5"/></svg>'
    )
