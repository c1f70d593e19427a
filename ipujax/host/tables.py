"""Tables of text: plain ones, and boxes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

Row = Sequence[str]


def table(rows: Sequence[Row], texts: Collection[int] = ()) -> list[str]:
    """Rows in columns: `texts` names those that are aligned to the left, as words are."""
    widths = _widths(rows)
    return ["  ".join(_aligned(row, widths, texts)).rstrip() for row in rows]


def boxed(
    header: Row, groups: Sequence[Sequence[Row]], spans: Sequence[tuple[str, int]] = ()
) -> list[str]:
    """Lines of a table with a frame.

    Args:
      header: the names of the columns.
      groups: rows, each as long as the header; a line is drawn below each group.
      spans: cells of a row above the header, each with how many columns it covers.
    """
    every = [header, *(row for group in groups for row in group)]
    widths = _widths(every)
    rule = _rule(widths)
    lines = [rule]
    if spans:
        wide = _merged(widths, [columns for _, columns in spans])
        lines = [_rule(wide), _line([text for text, _ in spans], wide), rule]
    for rows in ([header], *groups):
        lines += [_line(row, widths) for row in rows]
        lines.append(rule)
    return lines


def _merged(widths: list[int], columns: list[int]) -> list[int]:
    """The widths of cells that each cover several columns and the bars between them."""
    merged: list[int] = []
    for count in columns:
        merged.append(sum(widths[:count]) + len(" | ") * (count - 1))
        widths = widths[count:]
    return merged


def _rule(widths: list[int]) -> str:
    return "+" + "+".join("-" * (width + 2) for width in widths) + "+"


def _line(row: Row, widths: list[int]) -> str:
    return "| " + " | ".join(_aligned(row, widths, range(len(row)))) + " |"


def _widths(rows: Sequence[Row]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _aligned(row: Row, widths: list[int], texts: Collection[int]) -> list[str]:
    """Cells as wide as their columns; numbers end where their column does."""
    return [
        cell.ljust(width) if i in texts else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
