"""What the machine model says of a program: `executable.report()`.

    report = ipu.compile(step).lower(*args).report()
    print(report)                     # a page of text
    report.cycles, report.memory.fits
    report.to_json("report.json")     # schema 1, see `Report.to_dict`

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

from ipujax._report.advice import Advice
from ipujax._report.data import report_dict
from ipujax._report.text import page, summary
from lowering import machine, trace

KINDS = trace.KINDS
"""What a step can be."""


@dc.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Report:
    """Cycles and memory of one call of a program on one kind of IPU.

    Attributes:
      profile: what the machine model gave; the properties here read it.
      elements: of the infeed that gives most, taken by one call over all replicas; for a program
        without infeeds, the micro-batches of its pipelines; 0 without either.
      advice: what would help a program that does not fit, the largest effect first; () if it does.
      arguments: paths such as `args[0]['w']`, by their values in the program.
    """

    profile: machine.Profile
    elements: int
    advice: tuple[Advice, ...]
    arguments: Mapping[int, str]

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
    def operations(self) -> Sequence[machine.OperationTotal]:
        """Where the cycles go, most expensive first, with the user's lines."""
        return self.profile.operations

    @property
    def pipeline(self) -> machine.PipelineProfile | None:
        """How the program's first pipeline fills its IPUs; None if it has none."""
        return self.profile.pipeline

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

        `"schema"` is 1. The rest is named as here; bytes, cycles and seconds throughout.
        `"memory"` has arrays as nested lists, `"busy_cycles"` a list over IPUs for each kind of
        step, `"operations"` every operation and `"advice"` what would help. `"steps"` is as large
        as the program and not as its run: `"count"`, `"root"` and `"nodes"`, where a node is

        * `{"type": "block", "names", "steps"}`: steps `[ipu, kind, name, start, cycles]`, with
          `kind` a text and `name` an index into `names`;
        * `{"type": "group", "parts"}`: parts `[node, first, step, count]`: that node starts at
          cycles first, first + step, ..., `count` times;
        * `{"type": "loop", "body", "count", "period"}`: a node again and again;
        * `{"type": "tasks", "tasks"}`: tasks of a pipeline, each `{"body", "stage", "phase",
          "starts", "micro_batches"}`; both lists hold runs `[first, step, count]`, and their
          i-th entries belong together. `stage`, `phase` and micro-batch -1 are null where there
          is none.

        All starts count from that of the node around.
        """
        return report_dict(self)

    def to_json(self, path: str | Path) -> None:
        """Writes `to_dict` to a file, in UTF-8.

        Raises:
          OSError: a file that cannot be written.
        """
        text = json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False)
        Path(path).write_text(text + "\n", encoding="utf-8", newline="\n")

    def __str__(self) -> str:
        """A page of text for a terminal."""
        return page(self)

    def __repr__(self) -> str:
        return f"<Report of {summary(self)}>"
