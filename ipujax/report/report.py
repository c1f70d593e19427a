"""The report of a program: its cycles and memory by the machine model.

    report = ipu.compile(step).lower(*args).report()
    print(report)                     # a page of text
    report.cycles, report.memory.fits
    report.to_html("report.html")     # to look at, in any browser
    report.to_json("report.json")     # schema 2, see docs/report_format.md
    report.to_perfetto("steps.json")  # the steps of each IPU, for ui.perfetto.dev
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

from ipujax.ground import LARGE, Bounds, HostTrace, files
from ipujax.report.advice.findings import Advice
from ipujax.report.advice.findings import Cost as Cost
from ipujax.report.device_meshes import DeviceMesh
from ipujax.report.excerpts import Excerpt
from ipujax.report.make_playground import playground_of_pipeline
from ipujax.report.presentation import html, perfetto
from ipujax.report.presentation import report_file as file
from ipujax.report.presentation.document import read_report_document, report_dict
from ipujax.report.presentation.text_page import render_text_page, summarize_report
from ipujax.report.report_checks import check
from lowering import limit_dir_to, machine, trace

KINDS = trace.KINDS
"""The kinds of steps."""


@check.guard
@limit_dir_to()
@dc.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Report:
    """The cycles and memory of one call of a program on one kind of IPU.

    Attributes:
      profile: the machine model's profile of the program; the properties here read it.
      elements: elements of the largest infeed that one call takes over all replicas; for a program
        without infeeds, the micro-batches of its pipelines; 0 without either.
      batch_size: examples in each element: the leading dimension that all arrays of an element of
        that infeed have; None where they differ, or without infeeds.
      advice: changes for a program that does not fit: sufficient ones first, then by effect; () if
        it fits.
      arguments: paths such as `args[0]['w']`, by their values in the program.
      costs: the largest costs in time with their remedies, the largest first.
      host: the host's spans in a real run; None if nothing ran.
      label: a name for this run, beside others; "" for none.
      sources: the text of the user's lines that call paths name.
      meshes: the JAX devices that run each IPU, replica after replica, if the program was
        compiled with meshes; nothing here is modelled by them.
      read_activity: of a report from a file, what `tile_activity` gives.
    """

    profile: machine.Profile
    elements: int
    advice: tuple[Advice, ...]
    arguments: Mapping[int, str]
    costs: tuple[Cost, ...] = ()
    host: HostTrace | None = None
    label: str = ""
    sources: tuple[Excerpt, ...] = ()
    meshes: tuple[DeviceMesh, ...] = ()
    batch_size: int | None = None
    read_activity: machine.TileActivity | None = None

    @property
    def name(self) -> str:
        """The name of the program."""
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
        """The number of replicas that run side by side."""
        return self.profile.replication_factor

    @property
    def instances(self) -> int:
        """Processes that the replicas are dealt to, on machines that gateway links join."""
        return self.profile.instances

    @property
    def cycles(self) -> int:
        """The tile cycles of one call, from its first step to the end of its last."""
        return self.profile.cycles

    @property
    def seconds(self) -> float:
        """The time of one call: `cycles / target.clock_hz`."""
        return self.profile.seconds

    @property
    def throughput(self) -> float | None:
        """Elements per second over all replicas, `elements / seconds`; None without elements.

        An element is what the infeed gives at a time: in a pipeline, a micro-batch. Multiply by
        `batch_size` for examples.
        """
        return self.elements / self.seconds if self.elements and self.cycles else None

    @property
    def memory(self) -> machine.Memory:
        """Bytes on the tiles of one replica's IPUs; see `tile_peak_bytes`, `fits`, `biggest`..."""
        return self.profile.memory

    @property
    def liveness(self) -> Sequence[machine.Liveness]:
        """The tensors that are alive at each step, and their bytes, for each IPU."""
        return self.profile.liveness

    @property
    def program(self) -> machine.ProgramNode:
        """The program as a tree, with the cycles of its parts."""
        return self.profile.program

    @property
    def steps(self) -> machine.Steps:
        """The steps of each IPU in time: a lazy sequence; `steps.columns()` gives arrays."""
        return self.profile.steps

    @property
    def busy_cycles(self) -> Mapping[str, np.ndarray]:
        """The cycles of a call that each IPU spends, by kind of step: int64 [ipus].

        Where input and output have tiles of their own, kinds overlap; what is left of `cycles` is
        waiting.
        """
        busy = trace.count_busy_cycles(self.steps.trace, self.num_ipus)
        return {kind: busy[:, i] for i, kind in enumerate(KINDS)}

    @property
    def breakdown(self) -> Mapping[str, np.ndarray] | None:
        """The cycles of a call by cause, int64 [ipus] each; None in earlier reports.

        Causes are "work", "exchange", "copies", "update", "host", "streaming memory", "imbalance"
        and "bubble"; those of an IPU add up to `cycles`. docs/reports.md says what each means.
        """
        return self.profile.breakdown

    @property
    def operations(self) -> Sequence[machine.OperationTotal]:
        """The operations with their cycles and source lines, most expensive first."""
        return self.profile.operations

    @property
    def roofline(self) -> machine.Roofline | None:
        """The operations against the peaks of the chip; None in reports of earlier versions.

        `print(report.roofline)` shows it; docs/reports.md says what is counted.
        """
        return machine.build_roofline(self.operations, self.target)

    @property
    def pipeline(self) -> machine.PipelineProfile | None:
        """The profile of the program's first pipeline; None if it has none."""
        return self.profile.pipeline

    @property
    def graph(self) -> machine.Graph | None:
        """The numbers of compute sets and vertices; None in reports of earlier versions."""
        return self.profile.graph

    @property
    def compute_sets(self) -> Sequence[machine.ComputeSet]:
        """The compute sets of a call, in order, tile by tile; from a file, the 100 largest.

        Each has `.name .ipu .vertices .runs .tile_cycles .cycles`: `vertices` and `tile_cycles`
        (the vertices alone) are int64 [tiles] of one run; `cycles` is with launch and sync. Where
        the planner has laid out an operation, all tiles that take part have what the busiest has.
        """
        work = self.profile.tile_work
        if work is None:
            return self.read_activity.compute_sets if self.read_activity else ()
        return [*machine.list_compute_sets(self.steps.trace, work, self.target)]

    @property
    def exchanges(self) -> Sequence[machine.Exchange]:
        """The exchanges between tiles, or between IPUs, in order; from a file, the 100 largest.

        Each has `.name .ipu .runs .cycles .received_bytes .sent_bytes`, the last two int64 [tiles]
        of one run: an element that leaves a tile is sent once, one that a tile needs is received
        once.
        Where the planner has laid out an operation, all tiles have what the busiest has.
        """
        work = self.profile.tile_work
        if work is None:
            return self.read_activity.exchanges if self.read_activity else ()
        return [*machine.list_exchanges(self.steps.trace, work, self.target)]

    @property
    def tile_activity(self) -> machine.TileActivity | None:
        """The cycles and bytes of each tile in a call; None in reports of earlier versions.

        `.totals` has for each IPU `.cycles .received_bytes .sent_bytes`, int64 [tiles];
        `.compute_sets` and `.exchanges` are those that take most cycles.
        """
        work, trace, chip = self.profile.tile_work, self.steps.trace, self.target
        if work is None:
            return self.read_activity
        return machine.sum_tile_activity(
            machine.list_compute_sets(trace, work, chip),
            machine.list_exchanges(trace, work, chip),
            self.num_ipus,
            chip.tiles_per_ipu,
        )

    @property
    def default_share(self) -> float:
        """The share of compute cycles that rests on default formulas, 0 to 1."""
        return self.profile.default_share

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions that the model made, such as on trip counts that depend on values."""
        return self.profile.assumptions

    def to_dict(self) -> dict[str, Any]:
        """Returns the report in plain Python: dicts, lists, numbers and texts.

        `docs/report_format.md` describes it, `docs/report.schema.json` does so for machines.
        """
        return report_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """Returns the report that `to_dict` described.

        Raises:
          ReportError: (a `ValueError`) no report, one of another schema, or one that is broken.
        """
        return cls(**read_report_document(data, "this dict"))

    def to_json(self, path: str | Path) -> None:
        """Writes `to_dict` to a file, in UTF-8; compressed if its name ends in `.gz`.

        Raises:
          OSError: a file that cannot be written.
        """
        text = json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False)
        with file.open_report_for_writing(path) as out:
            out.write(text + "\n")

    def to_html(self, path: str | Path) -> None:
        """Writes a page to look at in a browser; the file needs nothing else.

        Raises:
          OSError: a file that cannot be written.
        """
        files.write_text(path, html.render_html_page([self.to_dict()]))

    def to_playground(self, path: str | Path) -> None:
        """Writes the playground of schedules, opened with the times of the pipeline's stages.

        It is one file, as `schedules.playground` makes it.

        Raises:
          OSError: a file that cannot be written.
          ReportError: (a `ValueError`) a program without a pipeline.
        """
        if self.pipeline is None:
            raise check.value_error(
                f"the playground of {self.name}, which has no pipeline",
                "report a program with one, or see schedules.playground",
            )
        page = playground_of_pipeline(self.name, self.pipeline, self.target.clock_hz)
        files.write_text(path, page)

    def to_perfetto(self, path: str | Path, limit: int | None = 2_000_000) -> None:
        """Writes the steps of each IPU as Chrome's trace events, for ui.perfetto.dev.

        Args:
          path: compressed if its name ends in `.gz`.
          limit: how many steps to write at most, those that start first; None for all.
            `otherData` says how many are left out.

        Raises:
          OSError: a file that cannot be written.
          ReportError: (a `ValueError`) a limit that is no positive number.
        """
        with file.open_report_for_writing(path) as out:
            perfetto.write_trace_events(self, out, limit)

    def _repr_html_(self) -> str:
        """Returns the page, for notebooks."""
        return html.render_notebook_iframe([self.to_dict()])

    def __str__(self) -> str:
        """Returns a page of text for a terminal."""
        return render_text_page(self)

    def __repr__(self) -> str:
        return f"<Report of {summarize_report(self)}>"


@check.guard
def load(path: str | Path) -> Report:
    """Returns the report that `to_json` wrote to a file.

    Raises:
      ReportFileError: (a `FileNotFoundError` and `ReportError`) a file that is not there.
      OSError: a file that cannot be read.
      ReportError: (a `ValueError`) no report, one of another schema, or one that is broken; the
        error names the file and the place in it.
    """
    return load_bounded_report(path, LARGE)


def load_bounded_report(path: str | Path, bounds: Bounds) -> Report:
    """Returns the report of a file, within bounds on its JSON; raises as `load`."""
    return Report(**read_report_document(file.read_report_json(path, bounds), str(path)))
