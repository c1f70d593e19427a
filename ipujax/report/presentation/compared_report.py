"""The parts of a report that a comparison reads, also of one that is only a document."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ipujax.report.presentation.document import decode_sections

if TYPE_CHECKING:
    from ipujax.report.advice.findings import Cost
    from ipujax.report.excerpts import Excerpt
    from ipujax.report.report import Report
    from lowering import machine


@dc.dataclass(frozen=True, kw_only=True)
class ReportParts:
    """The parts of a `Report` that a comparison reads; reports of earlier versions lack sources."""

    cycles: int
    elements: int
    replication_factor: int
    program: machine.ProgramNode
    operations: Sequence[machine.OperationTotal]
    costs: Sequence[Cost]
    sources: Sequence[Excerpt] = ()


ComparedReport: TypeAlias = "Report | ReportParts"


def read_report_parts(document: Mapping[str, Any]) -> ReportParts:
    """Reads the parts of a report from its document."""
    keys = [field.name for field in dc.fields(ReportParts)]
    return ReportParts(**decode_sections(document, keys))
