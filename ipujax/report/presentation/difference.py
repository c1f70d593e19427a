"""What two reports say differently, as text."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ipujax.host.tables import table
from ipujax.report.presentation.text import name, short, system
from ipujax.report.presentation.work import Work, differing_work
from ipujax.report.words import duration, size

if TYPE_CHECKING:
    from ipujax.report.report import Report

_MOST_OPERATIONS = 10
_MOST_HEAD = 24  # letters of a label above a column
_ROUNDING = 0.5  # cycles; those of operations are not whole

_Values: TypeAlias = Mapping[str, tuple[str, str, str]]
"""What each row says of a and b, and how it changes."""

_Both: TypeAlias = tuple[Work, Work] | None
"""What a call of each does, if that differs."""


def difference(a: Report, b: Report, labels: Sequence[str] = ("a", "b")) -> str:
    """Headline numbers, memory and time by kind, and the operations that changed most.

    Where one call does more than the other, cycles are those of an element, or of an iteration of
    their loop; the headline tells those of a call as well.

    Args:
      a: the report before.
      b: the report after.
      labels: what to call the two, such as the names of their files.

    Returns:
      Tables of what differs; one line if nothing does.
    """
    work = differing_work(a, b)
    per = f", per {work[0].unit}" if work else ""
    sections = {
        "": (_headline(a, b, work), None),
        "Memory of all IPUs": (_memory(a, b), None),
        f"Cycles of all IPUs{per}": (_busy(a, b, work), None),
        f"Operations that changed most, in cycles{per}": (
            _operations(a, b, work),
            _MOST_OPERATIONS,
        ),
    }
    heads = [_head(label) for label in labels]
    tables = [_table(title, heads, values, most) for title, (values, most) in sections.items()]
    shown = ["\n".join(lines) for lines in tables if lines]
    if not shown:
        return f"{name(a)}: no difference in time, memory or operations"
    return "\n\n".join(["\n".join(_titles(a, b, labels, work)), *shown])


def _head(label: str) -> str:
    """What is above a column: the end of a long label, which tells it from others."""
    return label if len(label) <= _MOST_HEAD else f"...{label[3 - _MOST_HEAD :]}"


def _titles(a: Report, b: Report, labels: Sequence[str], work: _Both) -> list[str]:
    """What is compared, what one of them lacks, and whether they do as much."""
    both = list(zip(labels, (a, b), strict=True))
    lines = [f"{label}: {name(report)}: {system(report)}" for label, report in both]
    piped = [label for label, report in both if report.pipeline]
    if len(piped) == 1:
        lines.append(f"only {piped[0]} has a pipeline")
    if work:
        before, after = work
        lines.append(
            f"{labels[1]} does {after.count / before.count:.4g} times the work of {labels[0]}: "
            f"{after} a call, not {before.count:,}"
        )
    return lines


def _fullest(report: Report) -> int:
    return int(report.memory.tile_peak_bytes.max())


def _rate(report: Report) -> str:
    return "-" if report.throughput is None else f"{report.throughput:,.1f}"


def _none(_: Report) -> float:
    return 0


_HEADLINE: Mapping[str, tuple[Callable[[Report], str], Callable[[Report], float]]] = {
    "cycles per call": (lambda r: f"{r.cycles:,}", lambda r: r.cycles),
    "time per call": (lambda r: duration(r.seconds), lambda r: r.seconds),
    "elements per call": (lambda r: f"{r.elements:,}", lambda r: r.elements),
    "elements/s": (_rate, lambda r: r.throughput or 0),
    "fits": (lambda r: "yes" if r.memory.fits else "no", _none),
    "fullest tile": (lambda r: size(_fullest(r)), _fullest),
    "IPUs": (lambda r: str(r.num_ipus), lambda r: r.num_ipus),
    "replicas": (lambda r: str(r.replication_factor), lambda r: r.replication_factor),
    "target": (lambda r: r.target.name, _none),
    "schedule": (lambda r: r.pipeline.schedule if r.pipeline else "-", _none),
}
"""What a number is shown as, and by what its change is told."""


def _headline(a: Report, b: Report, work: _Both) -> _Values:
    """What one element takes comes first where calls do not do as much."""
    each: _Values = {}
    if work:
        one, other, unit = work[0].count, work[1].count, work[0].unit
        before, after, change = _cycles(a.cycles / one, b.cycles / other)
        times = duration(a.seconds / one), duration(b.seconds / other)
        each = {
            f"cycles per {unit}": (before, after, change or "same"),
            f"time per {unit}": (*times, change or "same"),
        }
    return {
        **each,
        **{
            title: (shown(a), shown(b), _change(number(a), number(b)))
            for title, (shown, number) in _HEADLINE.items()
        },
    }


def _memory(a: Report, b: Report) -> _Values:
    before, after = a.memory.by_category, b.memory.by_category
    values = {name.replace("_", " "): _bytes(before[name], after.get(name, 0)) for name in before}
    values["all tiles"] = _bytes(sum(before.values()), sum(after.values()))
    remote = (int(a.memory.remote_bytes.sum()), int(b.memory.remote_bytes.sum()))
    return {**values, "streaming memory": _bytes(*remote)}


def _busy(a: Report, b: Report, work: _Both) -> _Values:
    """By cause, or by kind of step where one of the two is of an earlier version."""
    known = a.breakdown is not None and b.breakdown is not None
    before, after = (_by_cause(each) if known else _by_kind(each) for each in (a, b))
    one, other = _of_a_replica(a, b, work)
    return {name: _cycles(before[name] / one, after[name] / other) for name in before}


def _by_cause(report: Report) -> dict[str, int]:
    return {cause: int(cycles.sum()) for cause, cycles in (report.breakdown or {}).items()}


def _by_kind(report: Report) -> dict[str, int]:
    busy = {kind: int(cycles.sum()) for kind, cycles in report.busy_cycles.items()}
    waiting = report.num_ipus * report.cycles - sum(busy.values())
    named = {kind.replace("_ipu", "-IPU"): cycles for kind, cycles in busy.items()}
    return {**named, "waiting": max(waiting, 0)}


def _of_a_replica(a: Report, b: Report, work: _Both) -> tuple[float, float]:
    """By what cycles of one replica's IPUs are divided: what that replica does."""
    if work is None:
        return 1.0, 1.0
    shares = (
        each.count / report.replication_factor if each.unit == "element" else each.count
        for each, report in zip(work, (a, b), strict=True)
    )
    return next(shares), next(shares)


def _operations(a: Report, b: Report, work: _Both) -> _Values:
    """Those of one label, pass and line together, by how much they changed.

    Where one of the two is of an earlier version, which has no labels, those of one name.
    """
    one, other = _of_a_replica(a, b, work)
    labelled = all(operation.label for each in (a, b) for operation in each.operations)
    before, after = _by_operation(a, one, labelled), _by_operation(b, other, labelled)
    changes = {key: after[key] - before[key] for key in {**before, **after}}
    order = sorted(changes, key=lambda key: (-abs(changes[key]), key))
    return {
        f"{title} {short(line)}".rstrip(): _cycles(before[title, line], after[title, line])
        for title, line in order
    }


def _by_operation(
    report: Report, divided_by: float, labelled: bool
) -> collections.defaultdict[tuple[str, str], float]:
    cycles = collections.defaultdict[tuple[str, str], float](float)
    for operation in report.operations:
        words = (operation.label, operation.direction) if labelled else (operation.name,)
        cycles[", ".join(filter(None, words)), operation.origin] += operation.cycles / divided_by
    return cycles


def _table(title: str, heads: Sequence[str], values: _Values, most: int | None) -> list[str]:
    """Rows whose texts differ; nothing if there are none."""
    rows = [[name, *texts] for name, texts in values.items() if texts[0] != texts[1] or texts[2]]
    if not rows:
        return []
    shown = rows[:most]
    more = [f"and {len(rows) - len(shown):,} more"] if len(rows) > len(shown) else []
    return [*table([[title, *heads, "change"], *shown], texts=(0,)), *more]


def _cycles(before: float, after: float) -> tuple[str, str, str]:
    if abs(after - before) < _ROUNDING:
        before = after
    return f"{before:,.0f}", f"{after:,.0f}", _change(before, after)


def _bytes(before: int, after: int) -> tuple[str, str, str]:
    return size(before), size(after), _change(before, after)


def _change(before: float, after: float) -> str:
    """As `+12.5%`; "" for none."""
    if before == after:
        return ""
    if not before:
        return "new"
    if not after:
        return "gone"
    return f"{after / before - 1:+.1%}"
