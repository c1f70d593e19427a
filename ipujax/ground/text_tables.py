"""Formats tables of text, with and without frames."""

from __future__ import annotations

from collections.abc import Collection, Sequence

Row = Sequence[str]


def format_columns(rows: Sequence[Row], left_columns: Collection[int] = ()) -> list[str]:
    """Formats rows in columns; `left_columns` are aligned to the left, as words are."""
    widths = _column_widths(rows)
    return ["  ".join(_align_cells(row, widths, left_columns)).rstrip() for row in rows]


def format_boxed_table(
    header: Row, groups: Sequence[Sequence[Row]], spans: Sequence[tuple[str, int]] = ()
) -> list[str]:
    """Formats the lines of a table with a frame.

    Args:
      header: the names of the columns.
      groups: rows, each as long as the header; a line is drawn below each group.
      spans: cells of a row above the header, each with how many columns it covers.
    """
    all_rows = [header, *(row for group in groups for row in group)]
    widths = _column_widths(all_rows)
    rule = _format_rule(widths)
    lines = [rule]
    if spans:
        span_widths = _merge_column_widths(widths, [columns for _, columns in spans])
        lines = [
            _format_rule(span_widths),
            _format_boxed_row([text for text, _ in spans], span_widths),
            rule,
        ]
    for rows in ([header], *groups):
        lines += [_format_boxed_row(row, widths) for row in rows]
        lines.append(rule)
    return lines


def _merge_column_widths(widths: list[int], columns: list[int]) -> list[int]:
    """Returns the widths of cells that each cover several columns and the bars between them."""
    merged_widths: list[int] = []
    for count in columns:
        merged_widths.append(sum(widths[:count]) + len(" | ") * (count - 1))
        widths = widths[count:]
    return merged_widths


def _format_rule(widths: list[int]) -> str:
    return "+" + "+".join("-" * (width + 2) for width in widths) + "+"


def _format_boxed_row(row: Row, widths: list[int]) -> str:
    return "| " + " | ".join(_align_cells(row, widths, range(len(row)))) + " |"


def _column_widths(rows: Sequence[Row]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _align_cells(row: Row, widths: list[int], left_columns: Collection[int]) -> list[str]:
    """Pads cells to their columns' widths; cells outside of `left_columns` to the right."""
    return [
        cell.ljust(width) if i in left_columns else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
