"""Counts the work of one call of a program, so that calls of different work can be compared."""

from __future__ import annotations

import dataclasses as dc

from ipujax.report.presentation.compared_report import ComparedReport

_MOST_OF_IT = 0.9  # of a call, so that the loop's work counts as the call's


@dc.dataclass(frozen=True, slots=True)
class Work:
    """The work of one call: a count and its unit.

    Attributes:
      count: the number of units.
      unit: "element", as `Report.elements` counts them, or "iteration" of a loop that takes nearly
        all of the call.
    """

    count: int
    unit: str

    def __str__(self) -> str:
        return f"{self.count:,} {self.unit}{'s' * (self.count != 1)}"


def count_work_of_call(report: ComparedReport) -> Work | None:
    """Counts the work of one call over all replicas; None where it is unknown."""
    if report.elements:
        return Work(report.elements, "element")
    node, run_count = report.program, 1
    while node.kind in ("sequence", "execute") and node.children:
        node = max(node.children, key=lambda part: part.cycles * part.count)
        run_count *= node.count
    has_iterations = node.kind == "repeat" and node.count > 1
    takes_most_cycles = run_count * node.cycles >= _MOST_OF_IT * report.cycles
    return Work(node.count, "iteration") if has_iterations and takes_most_cycles else None


def compare_work(a: ComparedReport, b: ComparedReport) -> tuple[Work, Work] | None:
    """Returns the work of two reports' calls, where it can be compared and differs."""
    work_before, work_after = count_work_of_call(a), count_work_of_call(b)
    if (
        work_before is None
        or work_after is None
        or work_before.unit != work_after.unit
        or work_before == work_after
    ):
        return None
    return work_before, work_after
