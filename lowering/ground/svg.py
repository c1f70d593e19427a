"""Small drawings as SVG text, for notebooks: boxes, words, lines and arrows.

Colours are Okabe and Ito's, as in reports. Words and lines take the colour of the text around
them, so that a drawing can be read on a light and on a dark page.
"""

from __future__ import annotations

from html import escape
from typing import Literal

Anchor = Literal["start", "middle", "end"]

BLUE, ORANGE, GREEN, PINK, SKY = "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9"
RED, FAINT = "#d55e00", "#8a94a1"

_FONT = 'font-family="system-ui, sans-serif" font-size="12"'
_LETTER = 6.6  # how wide a letter of 12 pixels is, about
_SMALLEST = 0.75  # a narrower page does not shrink it further, so that it can be read, but scrolls
_HEADS = {"right": "l-8-4v8z", "up": "l-4 8h8z", "down": "l-4-8h8z"}


class Drawing:
    """A drawing of a given size in pixels; its `str` is an `<svg>` element that scrolls.

    Args:
      width: the width in pixels; a narrower page shrinks the drawing, or shows a part of it.
      height: the height in pixels.
      title: the text that a screen reader says.
    """

    def __init__(self, width: float, height: float, title: str):
        self._size, self._title = (round(width), round(height)), title
        self._parts: list[str] = []

    def draw_box(
        self, x: float, y: float, width: float, height: float, colour: str, *,
        tip: str = "", opacity: float = 1.0,
    ) -> None:  # fmt: skip
        """Draws a filled box, with a text that hovering shows."""
        title_element = f"<title>{escape(tip)}</title>" if tip else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2" '
            f'fill="{colour}" opacity="{opacity:.3g}">{title_element}</rect>'
        )

    def draw_text(
        self, x: float, y: float, text: str, anchor: Anchor = "start", *,
        colour: str = "currentColor", faint: bool = False,
    ) -> None:  # fmt: skip
        """Draws a line of text; `y` is its base line."""
        opacity = ' opacity="0.65"' if faint else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}"{opacity}>'
            f"{escape(text)}</text>"
        )

    def draw_line(self, path: str, *, width: float = 1.5) -> None:
        """Draws a line along the commands of an SVG path."""
        self._parts.append(
            f'<path d="{path}" fill="none" stroke="currentColor" stroke-width="{width:g}" '
            'opacity="0.5"/>'
        )

    def draw_arrow_head(
        self, x: float, y: float, direction: Literal["right", "up", "down"]
    ) -> None:
        """Draws the head of an arrow, with its tip at a point."""
        self._parts.append(f'<path d="M{x:g} {y:g}{_HEADS[direction]}" fill="currentColor"/>')

    def __str__(self) -> str:
        width, height = self._size
        return (
            '<div style="overflow-x:auto">'
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" style="max-width:100%;min-width:{_SMALLEST * width:g}px;height:auto" '
            f'role="img" {_FONT} '
            f'aria-label="{escape(self._title)}">{"".join(self._parts)}</svg></div>'
        )


def width_of_text(text: str) -> float:
    """Returns about how wide a line of text is, in pixels."""
    return _LETTER * len(text)
