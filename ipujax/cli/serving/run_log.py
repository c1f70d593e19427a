"""Renders the log of runs: each program's trend from run to run, and all runs in a table."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from html import escape
from typing import NamedTuple

from ipujax.cli.serving.page_numbers import (
    format_byte_count,
    format_cycle_count,
    format_relative_change,
    format_time,
)
from ipujax.cli.serving.report_library import Entry, Summary
from ipujax.cli.serving.sparkline import draw_sparkline
from ipujax.ground import count_with_noun

_HEADS = ("Run", "Program", "Written", "Cycles", "Time", "Fullest tile", "")
_NUMBERS = ("Cycles", "Time", "Fullest tile")


class Run(NamedTuple):
    """A readable report and its file.

    Attributes:
      entry: the file.
      summary: the report's summary.
    """

    entry: Entry
    summary: Summary


class _ProgramRuns(NamedTuple):
    """The runs of a program, and whether their cycles are compared by element."""

    runs: Sequence[Run]
    by_element: bool

    @property
    def unit_text(self) -> str:
        return "cycles of an element" if self.by_element else "cycles of a call"

    def cycles_of_run(self, run: Run) -> float:
        divisor = run.summary.elements if self.by_element else 1
        return run.summary.cycles / divisor


def render_run_log(entries: Sequence[Entry], ticked_keys: Collection[str] = ()) -> str:
    """Renders all reports as cards by program and as a table.

    Args:
      entries: the reports, the newest first.
      ticked_keys: the keys of the reports whose boxes are ticked.
    """
    if not entries:
        return '<p class="soft">No reports yet: report.to_json(path) or autoReport bring them.</p>'
    programs = _group_runs_by_program(entries)
    cards = "".join(
        _render_program_card(name, program_runs) for name, program_runs in programs.items()
    )
    rows = "".join(_render_entry_row(entry, programs, ticked_keys) for entry in entries)
    header_cells = "".join(
        f'<th scope="col"{_css_class_of_column(head)}>{head}</th>' if head else "<td></td>"
        for head in _HEADS
    )
    table = f"<thead><tr>{header_cells}</tr></thead><tbody>{rows}</tbody>"
    return (
        f'<div class="cards programs">{cards}</div>'
        f'<div class="table-scroll"><table class="plain-table runs">{table}</table></div>'
    )


def _css_class_of_column(head: str) -> str:
    return ' class="numeric"' if head in _NUMBERS else ""


def _group_runs_by_program(entries: Sequence[Entry]) -> Mapping[str, _ProgramRuns]:
    """Groups the runs by program, oldest run first; the program that ran last comes first."""
    runs_of_program: dict[str, list[Run]] = collections.defaultdict(list)
    for entry in entries:
        if isinstance(entry.found, Summary):
            runs_of_program[entry.found.name].insert(0, Run(entry, entry.found))
    return {
        name: _ProgramRuns(runs, _do_elements_differ(runs))
        for name, runs in runs_of_program.items()
    }


def _do_elements_differ(runs: Sequence[Run]) -> bool:
    """Returns whether the runs' elements per call are all known and differ."""
    counts = {run.summary.elements for run in runs}
    return len(counts) > 1 and 0 not in counts


def _render_program_card(name: str, program_runs: _ProgramRuns) -> str:
    last = program_runs.runs[-1]
    cycles_of_runs = [program_runs.cycles_of_run(run) for run in program_runs.runs]
    fullest_of_runs = [run.summary.fullest for run in program_runs.runs]
    count = count_with_noun(len(cycles_of_runs), "run")
    does_overflow = not last.summary.fits
    tile_label = f"fullest tile, of {format_byte_count(last.summary.limit)}"
    return (
        f'<article class="card" data-program="{escape(name)}">'
        f'<div class="card-head"><h3>{escape(name)}</h3><span class="faint">{count}</span></div>'
        f"{_render_trend(program_runs.unit_text, cycles_of_runs, format_cycle_count)}"
        f"{_render_trend(tile_label, fullest_of_runs, format_byte_count, is_bad=does_overflow)}"
        "</article>"
    )


def _render_trend(
    label: str,
    values: Sequence[float],
    format_value: Callable[[float], str],
    *,
    is_bad: bool = False,
) -> str:
    """Renders the latest value of a number, its last change, and a sparkline of all values."""
    change_html = _render_change(values[-2], values[-1]) if len(values) > 1 else ""
    runs = count_with_noun(len(values), "run")
    description = (
        f"{label} over {runs}: from {format_value(values[0])} to {format_value(values[-1])}"
    )
    return (
        '<div class="trend"><div><div '
        f'class="figure-value{" bad" * is_bad}">{format_value(values[-1])}</div>'
        f'<div class="figure-label">{label}</div></div><div class="moved">{change_html}</div>'
        f"{draw_sparkline(values, description)}</div>"
    )


def _render_change(value_before: float, value_after: float) -> str:
    """Renders the change of a value of which less is better."""
    text = format_relative_change(value_before, value_after)
    return (
        f'<span class="{"bad" if value_after > value_before else "good"}">{text}</span>'
        if text
        else ""
    )


def _filter_text_of_run(run: Run) -> str:
    """Returns the text that the page's filter searches for a run."""
    summary = run.summary
    words = (
        summary.name,
        summary.label,
        run.entry.display_title,
        summary.system,
        str(run.entry.path),
    )
    return escape(" ".join(words).lower())


def _render_entry_row(
    entry: Entry, programs: Mapping[str, _ProgramRuns], ticked_keys: Collection[str]
) -> str:
    written_at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.written))
    note = ""
    if entry.note:
        note = f'<div class="faint" title="{escape(entry.note)}">its folder is not complete</div>'
    path = escape(str(entry.path))
    path_and_note = f'<div class="path faint" id="path-{entry.key}">{path}</div>{note}'
    if not isinstance(entry.found, Summary):
        filter_text = escape(f"{entry.display_title} {entry.path}".lower())
        error_html = f'<pre class="bad">{escape(entry.found)}</pre>'
        return (
            f'<tr data-text="{filter_text}"><th '
            f'scope="row">{escape(entry.display_title)}{path_and_note}</th>'
            f'<td colspan="{len(_HEADS) - 1}">{error_html}</td></tr>'
        )
    run = Run(entry, entry.found)
    return _render_run_row(
        run, programs[run.summary.name], written_at, path_and_note, entry.key in ticked_keys
    )


def _render_run_row(
    run: Run, program_runs: _ProgramRuns, written: str, path_and_note: str, is_ticked: bool
) -> str:
    entry, summary = run
    run_index = program_runs.runs.index(run)
    change_html, compare = "", ""
    if run_index:
        previous_run = program_runs.runs[run_index - 1]
        change_html = " " + _render_change(
            program_runs.cycles_of_run(previous_run), program_runs.cycles_of_run(run)
        )
        compare_url = f"/compare?report={previous_run.entry.key}&amp;report={entry.key}"
        compare = f'<a href="{compare_url}">what changed</a> '
    per_element = (
        f'<div class="faint">{format_cycle_count(program_runs.cycles_of_run(run))} an element</div>'
    )
    title = escape(entry.display_title)
    checkbox = (
        f'<input type="checkbox" name="report" value="{entry.key}" aria-label="choose {title}" '
        f'aria-describedby="path-{entry.key}"{" checked" * is_ticked}>'
    )
    cycles_html = f'<span title="{summary.cycles:,}">{format_cycle_count(summary.cycles)}</span>'
    fits = "" if summary.fits else '<div class="bad">does not fit</div>'
    cells = (
        ("", f'{escape(summary.name)}<div class="faint">{escape(summary.system)}</div>'),
        ("", written),
        ("Cycles", f"{cycles_html}{change_html}{per_element if program_runs.by_element else ''}"),
        ("Time", format_time(summary.seconds)),
        ("Fullest tile", f"{format_byte_count(summary.fullest)}{fits}"),
        ("", f'{compare}<a href="/report/{entry.key}.json">JSON</a>'),
    )
    cells_html = "".join(
        f'<td{_css_class_of_column(head)} data-head="{head}"><div>{text}</div></td>'
        for head, text in cells
    )
    title_link = f'<a href="/report/{entry.key}">{title}</a>{path_and_note}'
    head = (
        '<th scope="row"><div '
        f'class="named"><label>{checkbox}</label><div>{title_link}</div></div></th>'
    )
    row_attributes = f'data-text="{_filter_text_of_run(run)}" data-program="{escape(summary.name)}"'
    return f"<tr {row_attributes}>{head}{cells_html}</tr>"
