"""The log of runs: each program with how it went from run to run, and all runs in a table."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from html import escape
from typing import NamedTuple

from ipujax.cli.serving.library import Entry, Summary
from ipujax.cli.serving.numbers import change, cycles, in_bytes, seconds
from ipujax.cli.serving.sparkline import sparkline
from ipujax.report.words import counted

_HEADS = ("Run", "Program", "Written", "Cycles", "Time", "Fullest tile", "")
_NUMBERS = ("Cycles", "Time", "Fullest tile")


class Run(NamedTuple):
    """A report that can be read.

    Attributes:
      entry: its file.
      summary: what it says.
    """

    entry: Entry
    summary: Summary


class _Told(NamedTuple):
    """What is told of a program's runs: their cycles, by element if they differ in these."""

    runs: Sequence[Run]
    by_element: bool

    @property
    def what(self) -> str:
        return "cycles of an element" if self.by_element else "cycles of a call"

    def cycles(self, run: Run) -> float:
        each = run.summary.elements if self.by_element else 1
        return run.summary.cycles / each


def log(entries: Sequence[Entry], chosen: Collection[str] = ()) -> str:
    """All reports.

    Args:
      entries: the newest first.
      chosen: the keys of those whose boxes are ticked.
    """
    if not entries:
        return '<p class="soft">No reports yet: report.to_json(path) or autoReport bring them.</p>'
    programs = _programs(entries)
    cards = "".join(_card(name, told) for name, told in programs.items())
    rows = "".join(_row(entry, programs, chosen) for entry in entries)
    heads = "".join(
        f'<th scope="col"{_numeric(head)}>{head or "<span hidden>more</span>"}</th>'
        for head in _HEADS
    )
    table = f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>"
    return (
        f'<div class="cards programs">{cards}</div>'
        f'<div class="table-scroll"><table class="plain-table runs">{table}</table></div>'
    )


def _numeric(head: str) -> str:
    return ' class="numeric"' if head in _NUMBERS else ""


def _programs(entries: Sequence[Entry]) -> Mapping[str, _Told]:
    """The runs of each program, the oldest first; that which ran last comes first."""
    found: dict[str, list[Run]] = collections.defaultdict(list)
    for entry in entries:
        if isinstance(entry.found, Summary):
            found[entry.found.name].insert(0, Run(entry, entry.found))
    return {name: _Told(runs, _differ(runs)) for name, runs in found.items()}


def _differ(runs: Sequence[Run]) -> bool:
    """Whether calls do not do as much, and each tells how much."""
    counts = {run.summary.elements for run in runs}
    return len(counts) > 1 and 0 not in counts


def _card(name: str, told: _Told) -> str:
    last = told.runs[-1]
    spent = [told.cycles(run) for run in told.runs]
    full = [run.summary.fullest for run in told.runs]
    count = counted(len(spent), "run")
    tile = f"fullest tile, of {in_bytes(last.summary.limit)}"
    return (
        f'<article class="card" data-program="{escape(name)}">'
        f'<div class="card-head"><h3>{escape(name)}</h3><span class="faint">{count}</span></div>'
        f"{_trend(told.what, spent, cycles)}"
        f"{_trend(tile, full, in_bytes, bad=not last.summary.fits)}</article>"
    )


def _trend(
    what: str, values: Sequence[float], text: Callable[[float], str], *, bad: bool = False
) -> str:
    """A number as it is now, how it changed since the run before, and how it went."""
    moved = _moved(values[-2], values[-1]) if len(values) > 1 else ""
    runs = counted(len(values), "run")
    said = f"{what} over {runs}: from {text(values[0])} to {text(values[-1])}"
    return (
        f'<div class="trend"><div><div class="figure-value{" bad" * bad}">{text(values[-1])}</div>'
        f'<div class="figure-label">{what}</div></div><div class="moved">{moved}</div>'
        f"{sparkline(values, said)}</div>"
    )


def _moved(before: float, after: float) -> str:
    """A change, less being better."""
    text = change(before, after)
    return f'<span class="{"bad" if after > before else "good"}">{text}</span>' if text else ""


def _searched(run: Run) -> str:
    """What the filter finds a run by."""
    summary = run.summary
    words = (summary.name, summary.label, run.entry.title, summary.system, str(run.entry.path))
    return escape(" ".join(words).lower())


def _row(entry: Entry, programs: Mapping[str, _Told], chosen: Collection[str]) -> str:
    written = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.written))
    note = ""
    if entry.note:
        note = f'<div class="faint" title="{escape(entry.note)}">its folder is not complete</div>'
    path = escape(str(entry.path))
    below = f'<div class="path faint" id="path-{entry.key}">{path}</div>{note}'
    if not isinstance(entry.found, Summary):
        searched = escape(f"{entry.title} {entry.path}".lower())
        trouble = f'<pre class="bad">{escape(entry.found)}</pre>'
        return (
            f'<tr data-text="{searched}"><th scope="row">{escape(entry.title)}{below}</th>'
            f'<td colspan="{len(_HEADS) - 1}">{trouble}</td></tr>'
        )
    run = Run(entry, entry.found)
    return _run_row(run, programs[run.summary.name], written, below, entry.key in chosen)


def _run_row(run: Run, told: _Told, written: str, below: str, ticked: bool) -> str:
    entry, summary = run
    place = told.runs.index(run)
    moved, compare = "", ""
    if place:
        before = told.runs[place - 1]
        moved = f" {_moved(told.cycles(before), told.cycles(run))}"
        asked = f"/compare?report={before.entry.key}&amp;report={entry.key}"
        compare = f'<a href="{asked}">what changed</a> '
    each = f'<div class="faint">{cycles(told.cycles(run))} an element</div>'
    title = escape(entry.title)
    box = (
        f'<input type="checkbox" name="report" value="{entry.key}" aria-label="choose {title}" '
        f'aria-describedby="path-{entry.key}"{" checked" * ticked}>'
    )
    spent = f'<span title="{summary.cycles:,}">{cycles(summary.cycles)}</span>'
    fits = "" if summary.fits else '<div class="bad">does not fit</div>'
    cells = (
        ("", f'{escape(summary.name)}<div class="faint">{escape(summary.system)}</div>'),
        ("", written),
        ("Cycles", f"{spent}{moved}{each if told.by_element else ''}"),
        ("Time", seconds(summary.seconds)),
        ("Fullest tile", f"{in_bytes(summary.fullest)}{fits}"),
        ("", f'{compare}<a href="/report/{entry.key}.json">JSON</a>'),
    )
    shown = "".join(
        f'<td{_numeric(head)} data-head="{head}"><div>{text}</div></td>' for head, text in cells
    )
    named = f'<a href="/report/{entry.key}">{title}</a>{below}'
    head = f'<th scope="row"><div class="named"><label>{box}</label><div>{named}</div></div></th>'
    told_by = f'data-text="{_searched(run)}" data-program="{escape(summary.name)}"'
    return f"<tr {told_by}>{head}{shown}</tr>"
