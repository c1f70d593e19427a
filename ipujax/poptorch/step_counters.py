"""The measured times of a model's runs and its compilation, and its modelled cycles."""

from __future__ import annotations

import abc
import datetime
from typing import NamedTuple, cast

from ipujax.driver import Executable
from ipujax.ground import PopTorchError
from ipujax.poptorch.batch_split import BatchSplit
from ipujax.poptorch.options import Options
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_programs import Program
from ipujax.report import Report

Latency = tuple[float, float, float]
"""The least, the greatest and the mean of some durations, in seconds."""


class Run(NamedTuple):
    """The times and tensor counts of one call of a model.

    The host sees a program begin and end, and nothing in between: all micro-batches of a call have
    these same times.

    Attributes:
      given: the time of the call, in seconds.
      started: the time when the program was started.
      ended: the time when the program's results were there.
      returned: the time when the results had become tensors.
      inputs: how many tensors each micro-batch takes.
      outputs: how many tensors each micro-batch returns.
      steps: the number of micro-batches.
      kept: the number of micro-batches whose outputs came back.
    """

    given: float
    started: float
    ended: float
    returned: float
    inputs: int
    outputs: int
    steps: int
    kept: int


class PerformanceCounters(abc.ABC):
    """A base class of wrapped models that reports times and cycles."""

    _options: Options
    _last_run: Run | None
    _compilation: datetime.timedelta | None

    @abc.abstractmethod
    def _require_program(self) -> Program:
        """Returns the program; raises an error if there is none."""

    @property
    def executable(self) -> Executable:
        """The compiled program, as `ipu.compile` returns it.

        Raises:
          PopTorchError: (a `ValueError`) the model is not compiled yet.
        """
        return cast(Executable, self._require_program().executable)

    def report(self) -> Report:
        """Returns the machine model's report: memory per tile, cycles and the timeline."""
        return self.executable.report()

    def cycleCount(self) -> int:
        """Returns the modelled number of clock cycles of one call.

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
        """Returns the time that tracing and compiling took.

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
        """Returns when data went in and out in the last call, as the host saw it.

        Returns:
          By `input`, `input_complete`, `output` and `output_complete` a list for each tensor, with
          a time for each micro-batch, in seconds from the first one.
        """
        run = self._require_last_run()
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
        """Returns the time that the last call's inputs took to the device."""
        return self._latency_between("given", "started")

    def getComputeLatency(self) -> Latency:
        """Returns the time that the last call computed, all its micro-batches together."""
        return self._latency_between("started", "ended")

    def getIpuHostLatency(self) -> Latency:
        """Returns the time that the last call's outputs took to the host."""
        return self._latency_between("ended", "returned")

    def getLatency(self) -> Latency:
        """Returns the time from the inputs to the outputs of the last call."""
        return self._latency_between("given", "returned")

    def _latency_between(self, start: str, end: str) -> Latency:
        run = self._require_last_run()
        seconds = getattr(run, end) - getattr(run, start) if run.steps else 0.0
        return seconds, seconds, seconds

    def _require_last_run(self) -> Run:
        if self._last_run is None:
            raise check.value_error("there are no times: the model has not run", "call it first")
        return self._last_run


def count_inputs_and_outputs_transferred(
    batch_split: BatchSplit, options: Options
) -> tuple[int, int]:
    """Counts the micro-batches of a call whose inputs, and whose outputs, are transferred.

    `OutputMode.Sum` gives one output of each replica; synthetic data is not transferred.
    """
    if options._Popart.options.get("syntheticDataMode"):  # pyright: ignore[reportPrivateUsage]
        return 0, 0
    steps = batch_split.count // batch_split.replicas
    kept_steps = {"Final": 1, "Sum": 1, "EveryN": steps // options.output_return_period}
    return batch_split.count, kept_steps.get(options.output_mode.name, steps) * batch_split.replicas
