"""Reports for scripts, with the names and structure of Graphcore's `pva` module.

    from ipujax import pva

    report = pva.openReport("report.json")
    print(report.compilation.target.numTiles, report.execution.totalCycles)
    print(sum(step.ipus[0].cycles for step in report.execution.steps))
    print(max(tile.memory.total.includingGaps for tile in report.compilation.tiles))

All of it is about one replica and one call, and looks at an `ipu.report.Report`; nothing is copied.
What pva measured and a model cannot know raises an `AttributeError` that names what to use instead.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from pathlib import Path

from ipujax import report as _report
from ipujax.ground import __version__
from ipujax.report import IPU as IPU
from ipujax.report import CompilationReport as CompilationReport
from ipujax.report import ExecutionReport as ExecutionReport
from ipujax.report import MemoryContents, View, check
from ipujax.report import Program as Program
from ipujax.report import ProgramVisitor as ProgramVisitor

__all__ = [
    "IPU",
    "CompilationReport",
    "ExecutionReport",
    "Program",
    "ProgramVisitor",
    "Report",
    "Version",
    "openReport",
]


def __dir__() -> list[str]:
    return __all__


@check.guard
@dc.dataclass(frozen=True)
class Version:
    """The version of the program that made a report.

    Attributes:
      string: as `ipujax 0.1.0`.
    """

    string: str


@check.guard
class Report(View):
    """A report.

    Attributes:
      source: the `ipu.report.Report` that all is read from.
    """

    def __init__(self, source: _report.Report) -> None:
        self.source = source

    @functools.cached_property
    def compilation(self) -> CompilationReport:
        """The compiled program, its chip, and the contents of its memory."""
        return CompilationReport(MemoryContents(self.source))

    @functools.cached_property
    def execution(self) -> ExecutionReport:
        """One call of it."""
        return ExecutionReport(MemoryContents(self.source))

    @property
    def poplarVersion(self) -> Version:
        """The ipujax that reads the report, in place of a Poplar."""
        return Version(f"ipujax {__version__}")


@check.guard
def openReport(path: str | Path) -> Report:
    """Opens the report in a file that `Report.to_json` wrote.

    Raises:
      ReportError: a file that is not there (then a `FileNotFoundError` too) or holds no report.
      OSError: a file that cannot be read.
    """
    return Report(_report.load(path))
