"""When everything runs: the steps of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from ipujax.report.checks import check
from ipujax.report.pva.held import Held
from ipujax.report.pva.programs import Program, program_of
from ipujax.report.pva.view import Lazy, View, told
from lowering import machine

_TRAFFIC = "use report.json's operations or the costs of ipu.report.load(path)"
_BALANCE = "the model tells the slowest tile of an operation only: use .cycles"


class Range(NamedTuple):
    """The first and the last of the tiles: the same, as the model takes them to be together."""

    min: int
    max: int


class ActiveCycles(NamedTuple):
    """From when to when, counted from the start of the call."""

    cyclesFrom: Range
    cyclesTo: Range


class IpuCycles(View):
    """What one IPU does in a step."""

    instead: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("dataIn", "dataOut"), _TRAFFIC),
        **dict.fromkeys(("activeTileBalance", "tileBalance", "cyclesByTile"), _BALANCE),
    }

    cycles: int = told(lambda self: self._place[1])
    """For how long; 0 on an IPU that takes no part."""

    @property
    def activeCycles(self) -> ActiveCycles:
        """From when to when; empty on an IPU that takes no part."""
        start, cycles = self._place
        return ActiveCycles(Range(start, start), Range(start + cycles, start + cycles))


class ExecutionStep(View):
    """A step. Of the model, it is one IPU's; what IPUs do together is a step for each."""

    def __init__(self, held: Held, step: machine.Step) -> None:
        super().__init__(held)
        self._step = step

    program: Program = told(lambda self: program_of(self._step))
    """What it runs."""
    name: str = told(lambda self: self._step.name)
    """What it is called."""

    @property
    def ipus(self) -> Lazy[int, IpuCycles]:
        """What each IPU of a replica does in it."""
        start, own, cycles = self._step.start_cycle, self._step.ipu, self._step.cycles
        ipus = range(self._held.report.num_ipus)
        return Lazy(ipus, lambda i: IpuCycles(self._held, start, cycles * (i == own)), "IPU")


class Microseconds(NamedTuple):
    """From when to when, at the chip's clock."""

    start: float
    end: float


class Run(View):
    """One call of the program."""

    name: str = told(lambda self: self._held.report.name)
    """The program's."""
    microseconds: Microseconds = told(
        lambda self: Microseconds(0.0, self._held.report.seconds * 1e6)
    )
    """How long it takes: `microseconds.end - microseconds.start`. It starts at 0."""

    @property
    def steps(self) -> Lazy[machine.Step, ExecutionStep]:
        """All steps, in the order of `ipu.report.Report.steps`."""
        held = self._held
        return Lazy(held.report.steps, lambda step: ExecutionStep(held, step), "step")


@check.guard
class ExecutionReport(View):
    """One call, modelled."""

    instead: ClassVar[Mapping[str, str]] = {"blocks": "the model has no blocks: use .steps"}

    runs: tuple[Run, ...] = told(lambda self: (Run(self._held),))
    """The one call that is modelled."""
    steps: Lazy[machine.Step, ExecutionStep] = told(lambda self: self.runs[0].steps)
    """The steps of that call."""
    totalCycles: int = told(lambda self: self._held.report.cycles)
    """Of one call, from its first step to the end of its last."""
