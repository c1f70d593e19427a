"""How much one call of a program does, so that calls that do more can be compared all the same."""

from __future__ import annotations

import dataclasses as dc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipujax.report.report import Report

_MOST_OF_IT = 0.9  # of a call, so that what a loop does is what the call does


@dc.dataclass(frozen=True, slots=True)
class Work:
    """What a call does so many times.

    Attributes:
      count: how many times.
      unit: "element", as `Report.elements` counts them, or "iteration" of a loop that takes nearly
        all of the call.
    """

    count: int
    unit: str

    def __str__(self) -> str:
        return f"{self.count:,} {self.unit}{'s' * (self.count != 1)}"


def work_of(report: Report) -> Work | None:
    """What one call does, over all replicas; None where nothing tells."""
    if report.elements:
        return Work(report.elements, "element")
    node, runs = report.program, 1
    while node.kind in ("sequence", "execute") and node.children:
        node = max(node.children, key=lambda part: part.cycles * part.count)
        runs *= node.count
    known = node.kind == "repeat" and node.count > 1
    takes = runs * node.cycles >= _MOST_OF_IT * report.cycles
    return Work(node.count, "iteration") if known and takes else None


def differing_work(a: Report, b: Report) -> tuple[Work, Work] | None:
    """What each does, where that can be compared and differs."""
    before, after = work_of(a), work_of(b)
    if before is None or after is None or before.unit != after.unit or before == after:
        return None
    return before, after
