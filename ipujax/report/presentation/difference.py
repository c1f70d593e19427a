"""The differences of two reports, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ipujax.ground import format_bytes, format_change, format_columns, format_duration
from ipujax.report.presentation.comparison import Comparison, compare_reports
from ipujax.report.presentation.pairing import Pair
from ipujax.report.presentation.text_page import (
    describe_system,
    shorten_program_name,
)

if TYPE_CHECKING:
    from ipujax.report.report import Report

_MOST_OPERATIONS = 10
_MOST_HEAD = 24  # letters of a label above a column
_ROUNDING = 0.5  # cycles, as cycles of operations are not integers

_Rows: TypeAlias = Sequence[tuple[str, str, str, str]]
"""Rows of a title, the text of a, the text of b, and the change."""


def describe_report_difference(a: Report, b: Report, labels: Sequence[str] = ("a", "b")) -> str:
    """Describes how headline numbers, memory, time and operations of two reports differ.

    Where the calls' work differs, cycles are those of an element, or of an iteration of
    their loop; the headline also has those of a call.

    Args:
      a: the report before.
      b: the report after.
      labels: names for the two, such as those of their files.

    Returns:
      Tables of the differences; one line if there are none.
    """
    comparison = compare_reports(a, b)
    per_unit = f", per {comparison.work[0].unit}" if comparison.work else ""
    sections = {
        "": (_compare_headlines(a, b, comparison), None),
        "Memory of all IPUs": (_compare_memory(a, b), None),
        f"Cycles of all IPUs{per_unit}": (_compare_busy_cycles(a, b, comparison), None),
        f"Operations that changed most, in cycles{per_unit}": (
            _compare_operations(a, b, comparison),
            _MOST_OPERATIONS,
        ),
    }
    column_heads = [_shorten_column_head(label) for label in labels]
    tables = [
        _build_difference_table(title, column_heads, rows, max_rows)
        for title, (rows, max_rows) in sections.items()
    ]
    tables_of_text = ["\n".join(lines) for lines in tables if lines]
    if not tables_of_text:
        return f"{shorten_program_name(a)}: no difference in time, memory or operations"
    head = "\n".join(_describe_compared_reports(a, b, labels, comparison))
    return "\n\n".join([head, *tables_of_text])


def _shorten_column_head(label: str) -> str:
    """Shortens a long label to its end, which tells it from others, as a column's head."""
    return label if len(label) <= _MOST_HEAD else f"...{label[3 - _MOST_HEAD :]}"


def _describe_compared_reports(
    a: Report, b: Report, labels: Sequence[str], comparison: Comparison
) -> list[str]:
    """Describes the reports that are compared, and how their pipelines and work differ."""
    labelled_reports = list(zip(labels, (a, b), strict=True))
    lines = [
        f"{label}: {shorten_program_name(report)}: {describe_system(report)}"
        for label, report in labelled_reports
    ]
    labels_with_pipeline = [label for label, report in labelled_reports if report.pipeline]
    if len(labels_with_pipeline) == 1:
        lines.append(f"only {labels_with_pipeline[0]} has a pipeline")
    return [*lines, *comparison.describe_work(labels)]


def _fullest_tile_bytes(report: Report) -> int:
    return int(report.memory.tile_peak_bytes.max())


def _compare_throughput(a: Report, b: Report) -> tuple[str, str, str, str]:
    """Compares examples a second where both reports know them, otherwise elements."""
    if a.batch_size and b.batch_size:
        title, examples = "examples a second", (a.batch_size, b.batch_size)
    else:
        title, examples = "elements a second", (1, 1)
    before, after = (
        (report.throughput or 0) * count for report, count in zip((a, b), examples, strict=True)
    )
    told_before, told_after = (f"{rate:,.1f}" if rate else "-" for rate in (before, after))
    return title, told_before, told_after, _format_change(before, after)


def _return_zero(_: Report) -> float:
    return 0


_HEADLINE: Mapping[str, tuple[Callable[[Report], str], Callable[[Report], float]]] = {
    "cycles per call": (lambda r: f"{r.cycles:,}", lambda r: r.cycles),
    "time per call": (lambda r: format_duration(r.seconds), lambda r: r.seconds),
    "elements per call": (lambda r: f"{r.elements:,}", lambda r: r.elements),
    "fits": (lambda r: "yes" if r.memory.fits else "no", _return_zero),
    "fullest tile": (lambda r: format_bytes(_fullest_tile_bytes(r)), _fullest_tile_bytes),
    "IPUs": (lambda r: str(r.num_ipus), lambda r: r.num_ipus),
    "replicas": (lambda r: str(r.replication_factor), lambda r: r.replication_factor),
    "target": (lambda r: r.target.name, _return_zero),
    "schedule": (lambda r: r.pipeline.schedule if r.pipeline else "-", _return_zero),
}
"""By title: how a report's text is written, and the number by which its change is computed."""


def _compare_headlines(a: Report, b: Report, comparison: Comparison) -> _Rows:
    """Compares headline numbers; where calls do not do the same, first what a part of one takes."""
    rows = [
        (title, format_value(a), format_value(b), _format_change(read_number(a), read_number(b)))
        for title, (format_value, read_number) in _HEADLINE.items()
    ]
    return [*_compare_unequal_calls(a, b, comparison), *rows, _compare_throughput(a, b)]


def _compare_unequal_calls(a: Report, b: Report, comparison: Comparison) -> _Rows:
    """Compares what one element, or a number of floating-point operations, takes of a call."""
    rows: list[tuple[str, str, str, str]] = []
    if comparison.work:
        work_a, work_b = comparison.work
        cycles_before, cycles_after, change = _compare_cycles(
            a.cycles / work_a.count, b.cycles / work_b.count
        )
        time_before, time_after = (
            format_duration(report.seconds / work.count)
            for report, work in ((a, work_a), (b, work_b))
        )
        rows = [
            (f"cycles per {work_a.unit}", cycles_before, cycles_after, change or "same"),
            (f"time per {work_a.unit}", time_before, time_after, change or "same"),
        ]
    if comparison.cycles_per_gigaflop:
        cycles = _compare_cycles(*comparison.cycles_per_gigaflop)
        rows.append(("cycles per forward GFLOP", *cycles))
    return rows


def _compare_memory(a: Report, b: Report) -> _Rows:
    bytes_before, bytes_after = a.memory.by_category, b.memory.by_category
    rows = [
        (name.replace("_", " "), *_compare_bytes(bytes_before[name], bytes_after.get(name, 0)))
        for name in bytes_before
    ]
    total = _compare_bytes(sum(bytes_before.values()), sum(bytes_after.values()))
    remote_bytes = (int(a.memory.remote_bytes.sum()), int(b.memory.remote_bytes.sum()))
    return [*rows, ("all tiles", *total), ("streaming memory", *_compare_bytes(*remote_bytes))]


def _compare_busy_cycles(a: Report, b: Report, comparison: Comparison) -> _Rows:
    """Compares cycles by cause, or by kind of step where a report lacks the causes."""
    have_breakdown = a.breakdown is not None and b.breakdown is not None
    cycles_before, cycles_after = (
        _cycles_by_cause(report) if have_breakdown else _cycles_by_kind(report) for report in (a, b)
    )
    divisor_a, divisor_b = comparison.divisors
    return [
        (name, *_compare_cycles(cycles_before[name] / divisor_a, cycles_after[name] / divisor_b))
        for name in cycles_before
    ]


def _cycles_by_cause(report: Report) -> dict[str, int]:
    return {cause: int(cycles.sum()) for cause, cycles in (report.breakdown or {}).items()}


def _cycles_by_kind(report: Report) -> dict[str, int]:
    busy = {kind: int(cycles.sum()) for kind, cycles in report.busy_cycles.items()}
    waiting = report.num_ipus * report.cycles - sum(busy.values())
    titled_cycles = {kind.replace("_ipu", "-IPU"): cycles for kind, cycles in busy.items()}
    return {**titled_cycles, "waiting": max(waiting, 0)}


def _compare_operations(a: Report, b: Report, comparison: Comparison) -> _Rows:
    """Compares pairs of operations, those that changed most first."""
    changes: list[tuple[str, float, float]] = []
    for pair in comparison.operations:
        cycles_before, cycles_after = (
            sum(report.operations[i].cycles for i in indices) / divisor
            for report, indices, divisor in zip(
                (a, b), pair.members, comparison.divisors, strict=True
            )
        )
        changes.append((_name_operations(pair, a, b), cycles_before, cycles_after))
    changes.sort(key=lambda change: (-abs(change[2] - change[1]), change[0]))
    return [(name, *_compare_cycles(before, after)) for name, before, after in changes]


def _name_operations(pair: Pair, a: Report, b: Report) -> str:
    """Returns `scope: title, pass line` of a pair; both lines where they differ."""
    operations = [
        report.operations[i]
        for report, indices in zip((a, b), pair.members, strict=True)
        for i in indices
    ]
    first_operation = operations[0]
    scope = f"{first_operation.scope}: " if first_operation.scope else ""
    direction = f", {first_operation.direction}" if first_operation.direction else ""
    lines = dict.fromkeys(_shorten_line(operation.origin) for operation in operations)
    return f"{scope}{pair.title}{direction}  {' → '.join(lines)}".rstrip()


def _shorten_line(origin: str) -> str:
    """Returns `file.py:12` of a line, as the page of two reports does."""
    return origin.partition(" (")[0].replace("\\", "/").rpartition("/")[2]


def _build_difference_table(
    title: str, column_heads: Sequence[str], rows: _Rows, max_rows: int | None
) -> list[str]:
    """Builds the lines of a table of the rows that differ; [] if there are none."""
    different_rows = [row for row in rows if row[1] != row[2] or row[3]]
    if not different_rows:
        return []
    visible_rows = different_rows[:max_rows]
    hidden_rows = len(different_rows) - len(visible_rows)
    remainder_line = [f"and {hidden_rows:,} more"] if hidden_rows else []
    return [
        *format_columns([[title, *column_heads, "change"], *visible_rows], left_columns=(0,)),
        *remainder_line,
    ]


def _compare_cycles(cycles_before: float, cycles_after: float) -> tuple[str, str, str]:
    if abs(cycles_after - cycles_before) < _ROUNDING:
        cycles_before = cycles_after
    return (
        f"{cycles_before:,.0f}",
        f"{cycles_after:,.0f}",
        _format_change(cycles_before, cycles_after),
    )


def _compare_bytes(bytes_before: int, bytes_after: int) -> tuple[str, str, str]:
    return (
        format_bytes(bytes_before),
        format_bytes(bytes_after),
        _format_change(bytes_before, bytes_after),
    )


def _format_change(old_value: float, new_value: float) -> str:
    """Formats a change as `+12.5%`, "new" or "gone"; "" for none."""
    if old_value == new_value:
        return ""
    if not old_value:
        return "new"
    if not new_value:
        return "gone"
    return format_change(new_value / old_value - 1)
