"""The differences of two reports, as text."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ipujax.ground import format_bytes, format_columns, format_duration
from ipujax.report.presentation.text_page import (
    describe_system,
    shorten_program_name,
    shorten_source_line,
)
from ipujax.report.presentation.work import Work, compare_work

if TYPE_CHECKING:
    from ipujax.report.report import Report

_MOST_OPERATIONS = 10
_MOST_HEAD = 24  # letters of a label above a column
_ROUNDING = 0.5  # cycles, as cycles of operations are not integers

_Values: TypeAlias = Mapping[str, tuple[str, str, str]]
"""Row titles, each with the text of a, the text of b, and the change."""

_Both: TypeAlias = tuple[Work, Work] | None
"""The work of one call of a and of b, where these differ; else None."""


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
    work = compare_work(a, b)
    per_unit = f", per {work[0].unit}" if work else ""
    sections = {
        "": (_compare_headlines(a, b, work), None),
        "Memory of all IPUs": (_compare_memory(a, b), None),
        f"Cycles of all IPUs{per_unit}": (_compare_busy_cycles(a, b, work), None),
        f"Operations that changed most, in cycles{per_unit}": (
            _compare_operations(a, b, work),
            _MOST_OPERATIONS,
        ),
    }
    column_heads = [_shorten_column_head(label) for label in labels]
    tables = [
        _build_difference_table(title, column_heads, values, max_rows)
        for title, (values, max_rows) in sections.items()
    ]
    tables_of_text = ["\n".join(lines) for lines in tables if lines]
    if not tables_of_text:
        return f"{shorten_program_name(a)}: no difference in time, memory or operations"
    return "\n\n".join(["\n".join(_describe_compared_reports(a, b, labels, work)), *tables_of_text])


def _shorten_column_head(label: str) -> str:
    """Shortens a long label to its end, which tells it from others, as a column's head."""
    return label if len(label) <= _MOST_HEAD else f"...{label[3 - _MOST_HEAD :]}"


def _describe_compared_reports(
    a: Report, b: Report, labels: Sequence[str], work: _Both
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
    if work:
        work_before, work_after = work
        lines.append(
            f"{labels[1]} does {work_after.count / work_before.count:.4g} times the work of "
            f"{labels[0]}: {work_after} a call, not {work_before.count:,}"
        )
    return lines


def _fullest_tile_bytes(report: Report) -> int:
    return int(report.memory.tile_peak_bytes.max())


def _format_throughput(report: Report) -> str:
    return "-" if report.throughput is None else f"{report.throughput:,.1f}"


def _no_number(_: Report) -> float:
    return 0


_HEADLINE: Mapping[str, tuple[Callable[[Report], str], Callable[[Report], float]]] = {
    "cycles per call": (lambda r: f"{r.cycles:,}", lambda r: r.cycles),
    "time per call": (lambda r: format_duration(r.seconds), lambda r: r.seconds),
    "elements per call": (lambda r: f"{r.elements:,}", lambda r: r.elements),
    "elements/s": (_format_throughput, lambda r: r.throughput or 0),
    "fits": (lambda r: "yes" if r.memory.fits else "no", _no_number),
    "fullest tile": (lambda r: format_bytes(_fullest_tile_bytes(r)), _fullest_tile_bytes),
    "IPUs": (lambda r: str(r.num_ipus), lambda r: r.num_ipus),
    "replicas": (lambda r: str(r.replication_factor), lambda r: r.replication_factor),
    "target": (lambda r: r.target.name, _no_number),
    "schedule": (lambda r: r.pipeline.schedule if r.pipeline else "-", _no_number),
}
"""By title: how a report's text is written, and the number by which its change is computed."""


def _compare_headlines(a: Report, b: Report, work: _Both) -> _Values:
    """Compares headline numbers; those of one element first where the calls' work differs."""
    rows_per_unit: _Values = {}
    if work:
        count_a, count_b, unit = work[0].count, work[1].count, work[0].unit
        cycles_before, cycles_after, change = _compare_cycles(
            a.cycles / count_a, b.cycles / count_b
        )
        durations = format_duration(a.seconds / count_a), format_duration(b.seconds / count_b)
        rows_per_unit = {
            f"cycles per {unit}": (cycles_before, cycles_after, change or "same"),
            f"time per {unit}": (*durations, change or "same"),
        }
    return {
        **rows_per_unit,
        **{
            title: (
                format_value(a),
                format_value(b),
                _format_change(read_number(a), read_number(b)),
            )
            for title, (format_value, read_number) in _HEADLINE.items()
        },
    }


def _compare_memory(a: Report, b: Report) -> _Values:
    bytes_before, bytes_after = a.memory.by_category, b.memory.by_category
    values = {
        name.replace("_", " "): _compare_bytes(bytes_before[name], bytes_after.get(name, 0))
        for name in bytes_before
    }
    values["all tiles"] = _compare_bytes(sum(bytes_before.values()), sum(bytes_after.values()))
    remote_bytes = (int(a.memory.remote_bytes.sum()), int(b.memory.remote_bytes.sum()))
    return {**values, "streaming memory": _compare_bytes(*remote_bytes)}


def _compare_busy_cycles(a: Report, b: Report, work: _Both) -> _Values:
    """Compares cycles by cause, or by kind of step where a report lacks the causes."""
    have_breakdown = a.breakdown is not None and b.breakdown is not None
    cycles_before, cycles_after = (
        _cycles_by_cause(report) if have_breakdown else _cycles_by_kind(report) for report in (a, b)
    )
    divisor_a, divisor_b = _work_per_replica(a, b, work)
    return {
        name: _compare_cycles(cycles_before[name] / divisor_a, cycles_after[name] / divisor_b)
        for name in cycles_before
    }


def _cycles_by_cause(report: Report) -> dict[str, int]:
    return {cause: int(cycles.sum()) for cause, cycles in (report.breakdown or {}).items()}


def _cycles_by_kind(report: Report) -> dict[str, int]:
    busy = {kind: int(cycles.sum()) for kind, cycles in report.busy_cycles.items()}
    waiting = report.num_ipus * report.cycles - sum(busy.values())
    titled_cycles = {kind.replace("_ipu", "-IPU"): cycles for kind, cycles in busy.items()}
    return {**titled_cycles, "waiting": max(waiting, 0)}


def _work_per_replica(a: Report, b: Report, work: _Both) -> tuple[float, float]:
    """Returns the work of one replica of each report, to divide its IPUs' cycles by."""
    if work is None:
        return 1.0, 1.0
    counts_per_replica = (
        report_work.count / report.replication_factor
        if report_work.unit == "element"
        else report_work.count
        for report_work, report in zip(work, (a, b), strict=True)
    )
    return next(counts_per_replica), next(counts_per_replica)


def _compare_operations(a: Report, b: Report, work: _Both) -> _Values:
    """Compares operations by label, pass and line, those that changed most first.

    Compares by name instead where a report of an earlier version has no labels.
    """
    divisor_a, divisor_b = _work_per_replica(a, b, work)
    have_labels = all(operation.label for report in (a, b) for operation in report.operations)
    cycles_before, cycles_after = (
        _cycles_by_operation(a, divisor_a, have_labels),
        _cycles_by_operation(b, divisor_b, have_labels),
    )
    changes = {
        key: cycles_after[key] - cycles_before[key] for key in {**cycles_before, **cycles_after}
    }
    keys_by_change = sorted(changes, key=lambda key: (-abs(changes[key]), key))
    return {
        f"{title} {shorten_source_line(line)}".rstrip(): _compare_cycles(
            cycles_before[title, line], cycles_after[title, line]
        )
        for title, line in keys_by_change
    }


def _cycles_by_operation(
    report: Report, divided_by: float, has_labels: bool
) -> collections.defaultdict[tuple[str, str], float]:
    cycles = collections.defaultdict[tuple[str, str], float](float)
    for operation in report.operations:
        title_parts = (operation.label, operation.direction) if has_labels else (operation.name,)
        cycles[", ".join(filter(None, title_parts)), operation.origin] += (
            operation.cycles / divided_by
        )
    return cycles


def _build_difference_table(
    title: str, column_heads: Sequence[str], values: _Values, max_rows: int | None
) -> list[str]:
    """Builds the lines of a table of the rows that differ; [] if there are none."""
    rows = [[name, *texts] for name, texts in values.items() if texts[0] != texts[1] or texts[2]]
    if not rows:
        return []
    visible_rows = rows[:max_rows]
    remainder_line = (
        [f"and {len(rows) - len(visible_rows):,} more"] if len(rows) > len(visible_rows) else []
    )
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
    return f"{new_value / old_value - 1:+.1%}"
