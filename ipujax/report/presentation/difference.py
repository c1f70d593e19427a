"""What two reports say differently, as text."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ipujax.host.tables import table
from ipujax.report.presentation.text import name, short, system
from ipujax.report.words import duration, size

if TYPE_CHECKING:
    from ipujax.report.report import Report

_MOST_OPERATIONS = 10
_ROUNDING = 0.5  # cycles; those of operations are not whole


def difference(a: Report, b: Report) -> str:
    """Headline numbers, memory and time by kind, and the operations that changed most.

    Args:
      a: the report before.
      b: the report after.

    Returns:
      Tables of what differs; one line if nothing does.
    """
    sections = (_headline(a, b), _memory(a, b), _busy(a, b), _operations(a, b))
    tables = ["\n".join(lines) for lines in sections if lines]
    if not tables:
        return f"{name(a)}: no difference in time, memory or operations"
    title = f"a: {name(a)}: {system(a)}\nb: {name(b)}: {system(b)}"
    return "\n\n".join([title, *tables])


def _fullest(report: Report) -> int:
    return int(report.memory.tile_peak_bytes.max())


def _rate(report: Report) -> str:
    return "-" if report.throughput is None else f"{report.throughput:,.1f}"


def _none(_: Report) -> float:
    return 0


_HEADLINE: Mapping[str, tuple[Callable[[Report], str], Callable[[Report], float]]] = {
    "cycles": (lambda r: f"{r.cycles:,}", lambda r: r.cycles),
    "time": (lambda r: duration(r.seconds), lambda r: r.seconds),
    "elements/s": (_rate, lambda r: r.throughput or 0),
    "fits": (lambda r: "yes" if r.memory.fits else "no", _none),
    "fullest tile": (lambda r: size(_fullest(r)), _fullest),
    "IPUs": (lambda r: str(r.num_ipus), lambda r: r.num_ipus),
    "replicas": (lambda r: str(r.replication_factor), lambda r: r.replication_factor),
    "target": (lambda r: r.target.name, _none),
    "schedule": (lambda r: r.pipeline.schedule if r.pipeline else "-", _none),
    "bubble": (lambda r: f"{r.pipeline.bubble_fraction:.1%}" if r.pipeline else "-", _none),
}
"""What a number is shown as, and by what its change is told."""


def _headline(a: Report, b: Report) -> list[str]:
    values = {
        title: (shown(a), shown(b), _change(number(a), number(b)))
        for title, (shown, number) in _HEADLINE.items()
    }
    return _table("", values)


def _memory(a: Report, b: Report) -> list[str]:
    before, after = a.memory.by_category, b.memory.by_category
    values = {name: _bytes(before[name], after.get(name, 0)) for name in before}
    values["all tiles"] = _bytes(sum(before.values()), sum(after.values()))
    remote = (int(a.memory.remote_bytes.sum()), int(b.memory.remote_bytes.sum()))
    return _table("Memory of all IPUs", {**values, "streaming memory": _bytes(*remote)})


def _busy(a: Report, b: Report) -> list[str]:
    before, after = _by_kind(a), _by_kind(b)
    values = {name: _cycles(before[name], after[name]) for name in before}
    return _table("Cycles of all IPUs", values)


def _by_kind(report: Report) -> dict[str, float]:
    busy = {kind: int(cycles.sum()) for kind, cycles in report.busy_cycles.items()}
    waiting = report.num_ipus * report.cycles - sum(busy.values())
    return {**busy, "waiting": max(waiting, 0)}


def _operations(a: Report, b: Report) -> list[str]:
    """Those of one name and line together."""
    before, after = _by_operation(a), _by_operation(b)
    changes = {key: after[key] - before[key] for key in {**before, **after}}
    order = sorted(changes, key=lambda key: (-abs(changes[key]), key))
    values = {
        f"{title} {short(line)}".rstrip(): _cycles(before[title, line], after[title, line])
        for title, line in order
    }
    return _table("Operations that changed most, in cycles", values, _MOST_OPERATIONS)


def _by_operation(report: Report) -> collections.defaultdict[tuple[str, str], float]:
    cycles = collections.defaultdict[tuple[str, str], float](float)
    for operation in report.operations:
        cycles[operation.name, operation.origin] += operation.cycles
    return cycles


def _table(
    title: str, values: Mapping[str, tuple[str, str, str]], most: int | None = None
) -> list[str]:
    """Rows whose texts differ; nothing if there are none."""
    rows = [[name, *texts] for name, texts in values.items() if texts[0] != texts[1] or texts[2]]
    if not rows:
        return []
    shown = rows[:most]
    more = [f"and {len(rows) - len(shown):,} more"] if len(rows) > len(shown) else []
    return [*table([[title, "a", "b", "change"], *shown], texts=(0,)), *more]


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
