"""Compares two reports: what text and page show of both, computed once."""

from __future__ import annotations

import dataclasses as dc
import re
from collections.abc import Sequence
from typing import Any

from ipujax.ground import format_three_digits
from ipujax.report.presentation.compared_report import ComparedReport
from ipujax.report.presentation.pairing import Item, Pair, pair_items
from ipujax.report.presentation.work import Work, compare_work
from lowering import parse_source_line

_ALIKE = 0.05  # by which the forward passes of comparable calls may differ at most, in FLOPs
_TYPE = re.compile(r"\s\S*\[.*")


@dc.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Pairs of operations in two reports, and the unit of work by which calls are compared.

    Attributes:
      work: the work of each call, where it is known and differs; else None.
      divisors: what the cycles of a replica are divided by for one unit of work; 1 without `work`.
      forward_flops: the floating-point operations of each forward pass, for one unit of work,
        where they differ so much that neither time is the better one; else None.
      cycles_per_gigaflop: the cycles that a call takes for 1e9 of these operations; None with them.
      operations: pairs of operations.
      costs: pairs of costs.
    """

    work: tuple[Work, Work] | None
    divisors: tuple[float, float]
    forward_flops: tuple[float, float] | None
    cycles_per_gigaflop: tuple[float, float] | None
    operations: Sequence[Pair]
    costs: Sequence[Pair]

    def describe_work(self, labels: Sequence[str]) -> list[str]:
        """Returns sentences on calls that do not do the same, without full stops."""
        a, b = labels
        sentences: list[str] = []
        if self.work:
            before, after = self.work
            ratio = format_three_digits(after.count / before.count)
            sentences.append(
                f"{b} does {ratio} times the work of {a}: {after} a call, not {before.count:,}"
            )
        if self.forward_flops:
            unit = f" of one {self.work[0].unit}" if self.work else ""
            flops_before, flops_after = self.forward_flops
            does_more = flops_after > flops_before
            verdict = "a longer time is not worse" if does_more else "a shorter time is not better"
            ratio = format_three_digits(flops_after / flops_before)
            sentences.append(
                f"{b} computes {ratio} times as many floating-point operations as {a} in the "
                f"forward pass{unit}, so that {verdict}"
            )
        return sentences

    def to_dict(self) -> dict[str, Any]:
        """Returns the comparison for the page, which calls the reports A and B."""
        work = self.work and {
            "unit": self.work[0].unit,
            "calls": [work.count for work in self.work],
            "replicas": list(self.divisors),
        }
        return {
            "notes": [f"{sentence}." for sentence in self.describe_work("AB")],
            "work": work,
            "cycles_per_gigaflop": self.cycles_per_gigaflop and list(self.cycles_per_gigaflop),
            "operations": [[pair.title, *map(list, pair.members)] for pair in self.operations],
            "costs": [[pair.title, *map(list, pair.members)] for pair in self.costs],
        }


def compare_reports(a: ComparedReport, b: ComparedReport) -> Comparison:
    """Compares two reports."""
    work = compare_work(a, b)
    divisors = _work_per_replica(a, b, work)
    has_labels = all(operation.label for report in (a, b) for operation in report.operations)
    operation_items = [_list_operation_items(report, has_labels) for report in (a, b)]
    cost_items = [
        [Item(cost.title, cost.origin, order=i) for i, cost in enumerate(report.costs)]
        for report in (a, b)
    ]
    flops = _compare_forward_flops(a, b, divisors)
    return Comparison(
        work=work,
        divisors=divisors,
        forward_flops=flops,
        cycles_per_gigaflop=flops
        and (
            a.cycles / divisors[0] / flops[0] * 1e9,
            b.cycles / divisors[1] / flops[1] * 1e9,
        ),
        operations=pair_items(*operation_items),
        costs=pair_items(*cost_items, across_lines=True),
    )


def _work_per_replica(
    a: ComparedReport, b: ComparedReport, work: tuple[Work, Work] | None
) -> tuple[float, float]:
    """Returns the work of one replica of each report, to divide its IPUs' cycles by."""
    if work is None:
        return 1.0, 1.0
    if work[0].unit != "element":
        return work[0].count, work[1].count
    return work[0].count / a.replication_factor, work[1].count / b.replication_factor


def _compare_forward_flops(
    a: ComparedReport, b: ComparedReport, divisors: tuple[float, float]
) -> tuple[float, float] | None:
    """Returns the FLOPs of each forward pass if they differ: recomputing them is not counted."""
    before, after = (
        sum(o.flops for o in report.operations if o.direction in ("forward", None)) / divisor
        for report, divisor in zip((a, b), divisors, strict=True)
    )
    if not before or not after or abs(after / before - 1) <= _ALIKE:
        return None
    return before, after


def _list_operation_items(report: ComparedReport, has_labels: bool) -> list[Item]:
    """Lists the operations of a report; without labels, as in earlier versions, by their names."""
    text_of_line = {
        (excerpt.file, number): text.strip()
        for excerpt in report.sources
        for number, text in enumerate(excerpt.text.splitlines(), excerpt.line)
    }
    items: list[Item] = []
    for operation in report.operations:
        name, line = operation.name, parse_source_line(operation.origin)
        item = Item(
            label=_TYPE.sub("", name),
            origin=operation.origin,
            line_text=text_of_line.get(line, "") if line else "",
            direction="backward" if name.endswith(", backward") else "forward",
            order=operation.number,
        )
        if has_labels:
            item = item._replace(
                label=operation.label,
                scope=operation.scope,
                direction=operation.direction or "forward",
            )
        items.append(item)
    return items
