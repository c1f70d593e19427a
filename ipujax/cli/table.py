"""Boxes of text."""

from __future__ import annotations

from collections.abc import Sequence

Row = Sequence[str]


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
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
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
    cells = (f" {cell.ljust(width)} " for cell, width in zip(row, widths, strict=True))
    return "|" + "|".join(cells) + "|"
