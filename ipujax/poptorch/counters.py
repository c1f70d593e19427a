"""What is measured of a model's runs, on the host, and of its compilation."""

from __future__ import annotations

import abc
import datetime
from typing import NamedTuple, cast

from ipujax.driver.stages import Executable
from ipujax.errors import PopTorchError
from ipujax.poptorch.checks import check
from ipujax.poptorch.options import Options
from ipujax.poptorch.programs import Program
from ipujax.poptorch.shares import Shares
from ipujax.report import Report

Latency = tuple[float, float, float]
"""The least, the greatest and the mean of some durations, in seconds."""


class Run(NamedTuple):
    """One call of a model.

    The host sees a program begin and end, and nothing in between: all micro-batches of a call have
    these same times.

    Attributes:
      given: when the inputs were given, in seconds.
      started: when the program was started.
      ended: when the results were there.
      returned: when the results were the user's tensors.
      inputs: how many tensors each micro-batch takes.
      outputs: how many it gives.
      steps: micro-batches.
      kept: those whose outputs came back.
    """

    given: float
    started: float
    ended: float
    returned: float
    inputs: int
    outputs: int
    steps: int
    kept: int


class Measured(abc.ABC):
    """What a wrapped model tells of itself."""

    _options: Options
    _last_run: Run | None
    _compilation: datetime.timedelta | None

    @abc.abstractmethod
    def _compiled(self) -> Program:
        """The program; an error, if there is none."""

    @property
    def executable(self) -> Executable:
        """The program, as `ipu.compile` makes them.

        Raises:
          PopTorchError: (a `ValueError`) there is none yet.
        """
        return cast(Executable, self._compiled().executable)

    def report(self) -> Report:
        """Memory per tile, cycles and the timeline, as the machine model tells them."""
        return self.executable.report()

    def cycleCount(self) -> int:
        """Cycles of the IPU's clock that a call takes, as the machine model tells them.

        Raises:
          PopTorchError: (a `ValueError`) `Options.logCycleCount(True)` was not set, or the model
            has not run.
        """
        switches = self._options._Popart.options  # pyright: ignore[reportPrivateUsage]
        if not switches["instrumentWithHardwareCycleCounter"]:
            raise PopTorchError(
                "Cycle count logging is disabled. Please set option logCycleCount to True to "
                "enable."
            )
        if self._last_run is None:
            raise PopTorchError("Please run the model at least once before obtaining cycle count.")
        return self.report().cycles

    def compilationTime(self) -> datetime.timedelta:
        """How long tracing and compiling took.

        Raises:
          PopTorchError: (a `ValueError`) the model is not compiled yet, or
            `Options.showCompilationProgressBar(False)` was set, as in the original.
        """
        if self._compilation is None:
            raise PopTorchError("Please compile the model before obtaining compilation time.")
        if not self._options._show_compilation_progress_bar:  # pyright: ignore[reportPrivateUsage]
            raise PopTorchError(
                "Please set showCompilationProgressBar option to obtain compilation time."
            )
        return self._compilation

    def getPerfCounters(self) -> dict[str, list[list[float]]]:
        """When data went in and out in the last call, as the host saw it.

        Returns:
          By `input`, `input_complete`, `output` and `output_complete` a list for each tensor, with
          a time for each micro-batch, in seconds from the first one.
        """
        run = self._ran()
        kinds = {
            "input": (run.given, run.inputs, run.steps),
            "input_complete": (run.started, run.inputs, run.steps),
            "output": (run.ended, run.outputs, run.kept),
            "output_complete": (run.returned, run.outputs, run.kept),
        }
        return {
            kind: [[at - run.given] * steps for _ in range(tensors)]
            for kind, (at, tensors, steps) in kinds.items()
        }

    def getHostIpuLatency(self) -> Latency:
        """How long the inputs of the last call took to the device."""
        return self._between("given", "started")

    def getComputeLatency(self) -> Latency:
        """How long the last call computed, all its micro-batches together."""
        return self._between("started", "ended")

    def getIpuHostLatency(self) -> Latency:
        """How long the outputs of the last call took to the host."""
        return self._between("ended", "returned")

    def getLatency(self) -> Latency:
        """How long the last call took from its inputs to its outputs."""
        return self._between("given", "returned")

    def _between(self, start: str, end: str) -> Latency:
        run = self._ran()
        seconds = getattr(run, end) - getattr(run, start) if run.steps else 0.0
        return seconds, seconds, seconds

    def _ran(self) -> Run:
        if self._last_run is None:
            raise check.refuse("there are no times of a model that has not run", "call it first")
        return self._last_run


def moved_steps(shares: Shares, options: Options) -> tuple[int, int]:
    """Of how many micro-batches of a call data goes in, and comes out.

    A sum is one of each replica; synthetic data goes nowhere.
    """
    if options._Popart.options.get("syntheticDataMode"):  # pyright: ignore[reportPrivateUsage]
        return 0, 0
    steps = shares.count // shares.replicas
    kept = {"Final": 1, "Sum": 1, "EveryN": steps // options.output_return_period}
    return shares.count, kept.get(options.output_mode.name, steps) * shares.replicas
