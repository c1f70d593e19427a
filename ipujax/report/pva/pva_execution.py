"""The views of an execution: the steps of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from ipujax.report.pva.memory_contents import MemoryContents
from ipujax.report.pva.pva_programs import Program, view_of_program
from ipujax.report.pva.view import Lazy, View, view_property
from ipujax.report.report_checks import check
from lowering import machine

_TRAFFIC = "use report.json's operations or the costs of ipu.report.load(path)"
_BALANCE = "the model tells the slowest tile of an operation only: use .cycles"


class Range(NamedTuple):
    """The first and the last of the tiles: the same, as the model takes them to be together."""

    min: int
    max: int


class ActiveCycles(NamedTuple):
    """The cycles from when to when, counted from the start of the call."""

    cyclesFrom: Range
    cyclesTo: Range


class IpuCycles(View):
    """The cycles of one IPU in a step."""

    instead: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("dataIn", "dataOut"), _TRAFFIC),
        **dict.fromkeys(("activeTileBalance", "tileBalance", "cyclesByTile"), _BALANCE),
    }

    cycles: int = view_property(lambda self: self._place[1])
    """The number of cycles; 0 on an IPU that takes no part."""

    @property
    def activeCycles(self) -> ActiveCycles:
        """The cycles from when to when; empty on an IPU that takes no part."""
        start, cycles = self._place
        return ActiveCycles(Range(start, start), Range(start + cycles, start + cycles))


class ExecutionStep(View):
    """A step. Of the model, it is one IPU's; what IPUs do together is a step for each."""

    def __init__(self, contents: MemoryContents, step: machine.Step) -> None:
        super().__init__(contents)
        self._step = step

    program: Program = view_property(lambda self: view_of_program(self._step))
    """The program that it runs."""
    name: str = view_property(lambda self: self._step.name)
    """The name of the step."""

    @property
    def ipus(self) -> Lazy[int, IpuCycles]:
        """The cycles of each IPU of a replica in this step."""
        start, ipu_of_step, cycles = self._step.start_cycle, self._step.ipu, self._step.cycles
        ipus = range(self._held.report.num_ipus)
        return Lazy(
            ipus, lambda i: IpuCycles(self._held, start, cycles * (i == ipu_of_step)), "IPU"
        )


class Microseconds(NamedTuple):
    """The times from when to when, at the chip's clock."""

    start: float
    end: float


class Run(View):
    """One call of the program."""

    name: str = view_property(lambda self: self._held.report.name)
    """The program's."""
    microseconds: Microseconds = view_property(
        lambda self: Microseconds(0.0, self._held.report.seconds * 1e6)
    )
    """How long it takes: `microseconds.end - microseconds.start`. It starts at 0."""

    @property
    def steps(self) -> Lazy[machine.Step, ExecutionStep]:
        """The steps, in the order of `ipu.report.Report.steps`."""
        contents = self._held
        return Lazy(contents.report.steps, lambda step: ExecutionStep(contents, step), "step")


@check.guard
class ExecutionReport(View):
    """One call, modelled."""

    instead: ClassVar[Mapping[str, str]] = {"blocks": "the model has no blocks: use .steps"}

    runs: tuple[Run, ...] = view_property(lambda self: (Run(self._held),))
    """The one call that is modelled."""
    steps: Lazy[machine.Step, ExecutionStep] = view_property(lambda self: self.runs[0].steps)
    """The steps of that call."""
    totalCycles: int = view_property(lambda self: self._held.report.cycles)
    """The cycles of one call, from its first step to the end of its last."""
