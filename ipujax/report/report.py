"""What the machine model says of a program: `executable.report()`.

    report = ipu.compile(step).lower(*args).report()
    print(report)                     # a page of text
    report.cycles, report.memory.fits
    report.to_html("report.html")     # to look at, in any browser
    report.to_json("report.json")     # schema 2, see docs/report_format.md
    report.to_perfetto("steps.json")  # what each IPU does when, for ui.perfetto.dev
    ipu.report.load("report.json")    # the report again

A report is about one call, modelled and not measured: nothing runs, nothing is compiled by XLA.
`docs/machine_model.md` says what is modelled, how, and what the numbers mean.
"""

from __future__ import annotations

import dataclasses as dc
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ipujax.host import files
from ipujax.host.json_text import LARGE, Bounds
from ipujax.host_trace import HostTrace
from ipujax.report.advice.findings import Advice
from ipujax.report.advice.findings import Cost as Cost
from ipujax.report.checks import check
from ipujax.report.excerpts import Excerpt
from ipujax.report.presentation import file, html, perfetto
from ipujax.report.presentation.document import read, report_dict
from ipujax.report.presentation.text import page, summary
from lowering import lists, machine, trace

KINDS = trace.KINDS
"""What a step can be."""


@check.guard
@lists()
@dc.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Report:
    """Cycles and memory of one call of a program on one kind of IPU.

    Attributes:
      profile: what the machine model gave; the properties here read it.
      elements: of the infeed that gives most, taken by one call over all replicas; for a program
        without infeeds, the micro-batches of its pipelines; 0 without either.
      advice: what would help a program that does not fit, what is enough first, then the largest
        effect; () if it does.
      arguments: paths such as `args[0]['w']`, by their values in the program.
      costs: what takes most of the time and what would help, the largest first.
      host: what the host did in a real run; None if nothing ran.
      label: what you call this run, beside others; "" for none.
      sources: the text of the user's lines that call paths name.
    """

    profile: machine.Profile
    elements: int
    advice: tuple[Advice, ...]
    arguments: Mapping[int, str]
    costs: tuple[Cost, ...] = ()
    host: HostTrace | None = None
    label: str = ""
    sources: tuple[Excerpt, ...] = ()

    @property
    def name(self) -> str:
        """The program's."""
        return self.profile.name

    @property
    def target(self) -> machine.Target:
        """The chip."""
        return self.profile.target

    @property
    def num_ipus(self) -> int:
        """IPUs of one replica."""
        return self.profile.num_ipus

    @property
    def replication_factor(self) -> int:
        """How many replicas run side by side."""
        return self.profile.replication_factor

    @property
    def instances(self) -> int:
        """Processes that the replicas are dealt to, on machines that gateway links join."""
        return self.profile.instances

    @property
    def cycles(self) -> int:
        """Tile cycles of one call, from its first step to the end of its last."""
        return self.profile.cycles

    @property
    def seconds(self) -> float:
        """How long one call takes: `cycles / target.clock_hz`."""
        return self.profile.seconds

    @property
    def throughput(self) -> float | None:
        """Elements per second over all replicas, `elements / seconds`; None without elements.

        An element is what the infeed gives at a time: in a pipeline, a micro-batch. Multiply by
        its batch size for samples.
        """
        return self.elements / self.seconds if self.elements and self.cycles else None

    @property
    def memory(self) -> machine.Memory:
        """Bytes on the tiles of one replica's IPUs; see `tile_peak_bytes`, `fits`, `biggest`..."""
        return self.profile.memory

    @property
    def liveness(self) -> Sequence[machine.Liveness]:
        """For each IPU: which tensors are alive at which step, and how much that is."""
        return self.profile.liveness

    @property
    def program(self) -> machine.ProgramNode:
        """The program as a tree, with the cycles of its parts."""
        return self.profile.program

    @property
    def steps(self) -> machine.Steps:
        """What each IPU does when: a lazy sequence; `steps.columns()` gives arrays."""
        return self.profile.steps

    @property
    def busy_cycles(self) -> Mapping[str, np.ndarray]:
        """By kind of step, int64 [ipus]: in how many cycles of a call each IPU does that.

        Where input and output have tiles of their own, kinds overlap; what is left of `cycles` is
        waiting.
        """
        busy = trace.busy(self.steps.trace, self.num_ipus)
        return {kind: busy[:, i] for i, kind in enumerate(KINDS)}

    @property
    def breakdown(self) -> Mapping[str, np.ndarray] | None:
        """What the cycles of a call go to, int64 [ipus] by cause; None in earlier reports.

        Causes are "work", "exchange", "copies", "update", "host", "imbalance" and "bubble"; those
        of an IPU add up to `cycles`. docs/reports.md says what each means.
        """
        return self.profile.breakdown

    @property
    def operations(self) -> Sequence[machine.OperationTotal]:
        """Where the cycles go, most expensive first, with the user's lines."""
        return self.profile.operations

    @property
    def pipeline(self) -> machine.PipelineProfile | None:
        """How the program's first pipeline fills its IPUs; None if it has none."""
        return self.profile.pipeline

    @property
    def graph(self) -> machine.Graph | None:
        """How many compute sets and vertices there are; None in reports of earlier versions."""
        return self.profile.graph

    @property
    def default_share(self) -> float:
        """The share of compute cycles that rests on default formulas, 0 to 1."""
        return self.profile.default_share

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What had to be assumed, such as trip counts that only values tell."""
        return self.profile.assumptions

    def to_dict(self) -> dict[str, Any]:
        """The report in plain Python: dicts, lists, numbers and texts.

        `docs/report_format.md` describes it, `docs/report.schema.json` does so for machines.
        """
        return report_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """The report that `to_dict` gave.

        Raises:
          ReportError: (a `ValueError`) no report, one of another schema, or one that is broken.
        """
        return cls(**read(data, "this dict"))

    def to_json(self, path: str | Path) -> None:
        """Writes `to_dict` to a file, in UTF-8; compressed if its name ends in `.gz`.

        Raises:
          OSError: a file that cannot be written.
        """
        text = json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False)
        with file.writing(path) as out:
            out.write(text + "\n")

    def to_html(self, path: str | Path) -> None:
        """Writes a page to look at in a browser; the file needs nothing else.

        Raises:
          OSError: a file that cannot be written.
        """
        files.write_text(path, html.page([self.to_dict()]))

    def to_perfetto(self, path: str | Path, limit: int | None = 2_000_000) -> None:
        """Writes what each IPU does when as Chrome's trace events, for ui.perfetto.dev.

        Args:
          path: compressed if its name ends in `.gz`.
          limit: how many steps to write at most, those that start first; None for all. How many are
            left out, `otherData` says.

        Raises:
          OSError: a file that cannot be written.
          ReportError: (a `ValueError`) a limit that is no positive number.
        """
        with file.writing(path) as out:
            perfetto.write(self, out, limit)

    def _repr_html_(self) -> str:
        """The page, for notebooks."""
        return html.inline([self.to_dict()])

    def __str__(self) -> str:
        """A page of text for a terminal."""
        return page(self)

    def __repr__(self) -> str:
        return f"<Report of {summary(self)}>"


@check.guard
def load(path: str | Path) -> Report:
    """The report that `to_json` wrote to a file.

    Raises:
      ReportFileError: (a `FileNotFoundError` and `ReportError`) a file that is not there.
      OSError: a file that cannot be read.
      ReportError: (a `ValueError`) no report, one of another schema, or one that is broken; the
        error names the file and the place in it.
    """
    return load_within(path, LARGE)


def load_within(path: str | Path, bounds: Bounds) -> Report:
    """The report of a file that may hold so much JSON and no more; raises as `load`."""
    return Report(**read(file.read_json(path, bounds), str(path)))
