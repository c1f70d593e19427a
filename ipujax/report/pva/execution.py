"""When everything runs: the steps of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ipujax.report.pva.programs import Program, of_step
from ipujax.report.pva.view import Lazy, View

if TYPE_CHECKING:
    from ipujax.report.report import Report
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
        "dataIn": _TRAFFIC,
        "dataOut": _TRAFFIC,
        "activeTileBalance": _BALANCE,
        "tileBalance": _BALANCE,
        "cyclesByTile": _BALANCE,
    }

    def __init__(self, start: int, cycles: int) -> None:
        self._start, self._cycles = start, cycles

    @property
    def cycles(self) -> int:
        """For how long; 0 on an IPU that takes no part."""
        return self._cycles

    @property
    def activeCycles(self) -> ActiveCycles:
        """From when to when; empty on an IPU that takes no part."""
        end = self._start + self._cycles
        return ActiveCycles(Range(self._start, self._start), Range(end, end))


class ExecutionStep(View):
    """A step. Of the model, it is one IPU's; what IPUs do together is a step for each."""

    def __init__(self, step: machine.Step, ipus: int) -> None:
        self._step, self._ipus = step, ipus

    @property
    def program(self) -> Program:
        """What it runs."""
        return of_step(self._step)

    @property
    def name(self) -> str:
        """What it is called."""
        return self._step.name

    @property
    def ipus(self) -> Lazy[int, IpuCycles]:
        """What each IPU of a replica does in it."""
        step = self._step
        return Lazy(
            range(self._ipus),
            lambda ipu: IpuCycles(step.start_cycle, step.cycles if ipu == step.ipu else 0),
            "IPU",
        )


class Run(View):
    """One call of the program."""

    def __init__(self, report: Report) -> None:
        self._report = report

    @property
    def name(self) -> str:
        """The program's."""
        return self._report.name

    @property
    def steps(self) -> Lazy[machine.Step, ExecutionStep]:
        """All steps, in the order of `ipu.report.Report.steps`."""
        ipus = self._report.num_ipus
        return Lazy(self._report.steps, lambda step: ExecutionStep(step, ipus), "step")


class ExecutionReport(View):
    """One call, modelled."""

    instead: ClassVar[Mapping[str, str]] = {"blocks": "the model has no blocks: use .steps"}

    def __init__(self, report: Report) -> None:
        self._report = report

    @property
    def runs(self) -> tuple[Run, ...]:
        """The one call that is modelled."""
        return (Run(self._report),)

    @property
    def steps(self) -> Lazy[machine.Step, ExecutionStep]:
        """The steps of that call."""
        return self.runs[0].steps

    @property
    def totalCycles(self) -> int:
        """Of one call, from its first step to the end of its last."""
        return self._report.cycles
