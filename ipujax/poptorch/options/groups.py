"""The groups of PopTorch's options: `Training`, `Precision`, `Jit` and `Distributed`."""

from __future__ import annotations

import os

import torch

from ipujax.distribution.instance import Instance
from ipujax.distribution.join import instance
from ipujax.poptorch.checks import check
from ipujax.poptorch.enums import HalfFloatCastingBehavior, MeanReductionStrategy, ReductionType
from ipujax.poptorch.log import logger
from ipujax.poptorch.options.popart import PopartOptions
from ipujax.poptorch.options.store import OptionsDict

_REDUCTIONS = (ReductionType.Mean, ReductionType.Sum)


@check.guard
class JitOptions(OptionsDict):
    """`Options.Jit`, of the time when PopTorch traced models by TorchScript."""

    def traceModel(self, trace_model: bool) -> JitOptions:
        """Nothing: models are captured by `torch.export`.

        Raises:
          Error: tracing by TorchScript is asked for; the original stopped doing that as well.
        """
        if check.flag(trace_model, "trace_model"):
            raise check.refuse("options.Jit.traceModel(True) is no longer supported", "leave it")
        logger.warning("[Deprecated] options.Jit.traceModel(False) is what always happens.")
        return self


@check.guard
class PrecisionOptions(OptionsDict):
    """`Options.Precision`: how numbers are rounded, and which of them are errors."""

    def __init__(self, popart_options: PopartOptions):
        self._popart_options = popart_options
        super().__init__()

    def autocastEnabled(self, enabled: bool) -> PrecisionOptions:
        """Whether dtypes are chosen automatically; they never are, as in the last versions.

        Raises:
          Error: they are asked for.
        """
        if check.flag(enabled, "autocastEnabled"):
            raise check.refuse(
                "Precision.autocastEnabled(True): no dtypes are chosen automatically",
                "call model.half(), or cast tensors with .half() and .float()",
            )
        return self

    def halfFloatCasting(self, half_float_casting: HalfFloatCastingBehavior) -> PrecisionOptions:
        """Nothing: float16 beside float32 becomes float32, as in PyTorch.

        But products have the dtype of what they are applied to, whatever that of the weights is.
        """
        kind = HalfFloatCastingBehavior
        check.instance(half_float_casting, kind, "halfFloatCasting", f"a poptorch.{kind.__name__}")
        logger.warning("[Deprecated] options.Precision.halfFloatCasting() changes nothing.")
        return self

    def runningStatisticsAlwaysFloat(self, value: bool) -> PrecisionOptions:
        """Nothing: running statistics have the module's own dtype, as in PyTorch."""
        check.flag(value, "runningStatisticsAlwaysFloat")
        logger.warning(
            "[Deprecated] options.Precision.runningStatisticsAlwaysFloat() changes nothing."
        )
        return self

    def enableFloatingPointExceptions(self, enabled: bool) -> PrecisionOptions:
        """Whether a run raises where a value becomes infinite or no number.

        Kept as `_Popart.options["enableFloatingPointChecks"]`.
        """
        flag = check.flag(enabled, "enableFloatingPointExceptions")
        self._popart_options.set("enableFloatingPointChecks", flag)
        return self

    def enableStochasticRounding(self, enabled: bool) -> PrecisionOptions:
        """Whether values that become float16 are rounded at random, so that sums stay right.

        Kept as `_Popart.options["enableStochasticRounding"]`.
        """
        flag = check.flag(enabled, "enableStochasticRounding")
        self._popart_options.set("enableStochasticRounding", flag)
        return self

    def setPartialsType(self, dtype: torch.dtype) -> PrecisionOptions:
        """The dtype of partial sums in products of matrices and convolutions.

        It changes the modelled memory and cycles, and the numbers of float16. Kept as
        `_Popart.options["partialsTypeMatMuls"]`, "float" or "half".

        Raises:
          Error: it is neither float32 nor float16.
        """
        if dtype not in (torch.float32, torch.float16):
            wanted = "torch.float or torch.half"
            raise check.other_than(wanted, dtype, "the parameter of setPartialsType")
        name = "float" if dtype == torch.float32 else "half"
        self._popart_options.set("partialsTypeMatMuls", name)
        self._popart_options.set("convolutionOptions", {"partialsType": name})
        return self


@check.guard
class TrainingOptions(OptionsDict):
    """`Options.Training`: what only a model that trains reads.

    Attributes:
      gradient_accumulation: micro-batches of one replica per update of the weights.
      accumulation_and_replication_reduction_type: whether their gradients, and those of replicas,
        are added or averaged.
      meanAccumulationAndReplicationReductionStrategy: when a mean is divided.
    """

    gradient_accumulation: int
    accumulation_and_replication_reduction_type: ReductionType
    meanAccumulationAndReplicationReductionStrategy: MeanReductionStrategy

    def __init__(self, popart_options: PopartOptions):
        self._popart_options = popart_options
        super().__init__(
            gradient_accumulation=1,
            accumulation_and_replication_reduction_type=ReductionType.Mean,
            meanAccumulationAndReplicationReductionStrategy=MeanReductionStrategy.Post,
        )

    def gradientAccumulation(self, gradient_accumulation: int) -> TrainingOptions:
        """How many micro-batches each replica works through before the weights are updated."""
        number = check.integer(gradient_accumulation, "gradientAccumulation", at_least=1)
        self.set(gradient_accumulation=number)
        return self

    def accumulationAndReplicationReductionType(
        self, reduction_type: ReductionType
    ) -> TrainingOptions:
        """Whether gradients of micro-batches and replicas are added or averaged.

        Unless it is set, they are averaged, whatever the loss's own reduction is.

        Raises:
          Error: it is neither `ReductionType.Mean` nor `ReductionType.Sum`.
        """
        if not isinstance(reduction_type, ReductionType) or reduction_type not in _REDUCTIONS:
            wanted = "poptorch.ReductionType.Mean or poptorch.ReductionType.Sum"
            what = "accumulationAndReplicationReductionType"
            raise check.other_than(wanted, reduction_type, what)
        self.set(accumulation_and_replication_reduction_type=reduction_type)
        return self

    def setMeanAccumulationAndReplicationReductionStrategy(
        self, mean_reduction_strategy: MeanReductionStrategy
    ) -> TrainingOptions:
        """When a mean of gradients is divided: to rounding, the numbers are the same."""
        name = "meanAccumulationAndReplicationReductionStrategy"
        check.instance(mean_reduction_strategy, MeanReductionStrategy, name)
        self.set(**{name: mean_reduction_strategy})
        return self

    def setAutomaticLossScaling(self, enabled: bool) -> TrainingOptions:
        """Whether a factor of the loss follows the gradients, to keep float16 in range.

        The factor begins with the optimizer's `loss_scaling`. After each weight update it is
        halved if any gradient in float16 is near the greatest float16, else doubled; see
        `training.loss_scaling`. Kept as `_Popart.options["automaticLossScalingSettings.enabled"]`.
        """
        flag = check.flag(enabled, "setAutomaticLossScaling")
        self._popart_options.set("automaticLossScalingSettings.enabled", flag)
        return self

    def setConvolutionDithering(self, enabled: bool) -> TrainingOptions:
        """Which tiles convolutions start from; nothing here: it shapes the IPU's memory only."""
        flag = check.flag(enabled, "setConvolutionDithering")
        self._popart_options.set("convolutionOptions", {"enableConvDithering": flag})
        return self


@check.guard
class DistributedOptions(OptionsDict):
    """`Options.Distributed`: the part of this process in a run of several.

    A `DataLoader` gives each process its part of the data set, and `trainingModel` trains with the
    replicas of all of them. At first they are the instances that run (see `ipurun`); where there
    are none, what `mpirun` says by `OMPI_COMM_WORLD_SIZE` and `OMPI_COMM_WORLD_RANK`.

    Attributes:
      num_distributed_processes: how many there are.
      distributed_process_id: which of them this is, from 0.
    """

    num_distributed_processes: int
    distributed_process_id: int

    def __init__(self) -> None:
        super().__init__(num_distributed_processes=1, distributed_process_id=0, ipuof_configs={})
        if own := instance():
            self._become(own.share_of_replicas, own.shares_of_replicas)
        else:
            self._become(*_named("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"))

    def disable(self) -> DistributedOptions:
        """Has this process be the only one, and train alone, whatever others there are."""
        return self._become(0, 1)

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> DistributedOptions:
        """Reads number and id of processes from two variables of the environment.

        Raises:
          Error: a variable holds no number, or the id is none of the processes'.
        """
        return self._become(*_named(var_num_processes, var_process_id))

    def configureProcessId(self, process_id: int, num_processes: int) -> DistributedOptions:
        """Says which of how many processes this is.

        Raises:
          Error: there is no such process among so many, or other instances run than these; one
            alone is always possible.
        """
        return self._become(process_id, num_processes)

    def _become(self, process_id: int, num_processes: int) -> DistributedOptions:
        number = check.integer(num_processes, "the number of processes", at_least=1)
        process = check.integer(process_id, "the id of this process", at_least=0)
        if process >= number:
            wrong = f"this is process {process} of {number}, but they count from 0"
            raise check.refuse(wrong, f"give an id from 0 to {number - 1}")
        own = instance() or Instance(process, number)
        if number > 1 and (process, number) != (own.share_of_replicas, own.shares_of_replicas):
            raise check.refuse(
                f"this would be process {process} of {number}, but it is instance {own.index} of "
                f"the {own.count} that run",
                "leave it away: options say that already; or Distributed.disable()",
            )
        self.set(distributed_process_id=process, num_distributed_processes=number)
        return self

    @property
    def processId(self) -> int:
        """Which of the processes this is, from 0."""
        return self.distributed_process_id

    @property
    def numProcesses(self) -> int:
        """How many processes there are."""
        return self.num_distributed_processes


def _named(var_num_processes: str, var_process_id: str) -> tuple[int, int]:
    """Id and number of processes that variables of the environment say."""
    return _variable(var_process_id, "0"), _variable(var_num_processes, "1")


def _variable(name: str, default: str) -> int:
    value = os.environ.get(name, default)
    if not value.isdecimal():
        raise check.refuse(f"the variable {name} is {value!r}, but must be a number")
    return int(value)
