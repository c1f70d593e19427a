"""The groups of PopTorch's options: `Training`, `Precision`, `Jit` and `Distributed`."""

from __future__ import annotations

import os

import torch

from ipujax.ground import Instance, get_joined_instance
from ipujax.poptorch.autocasting import Policy, default
from ipujax.poptorch.enums import HalfFloatCastingBehavior, MeanReductionStrategy, ReductionType
from ipujax.poptorch.options.option_store import OptionsDict
from ipujax.poptorch.options.popart_options import PopartOptions
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_log import logger

_REDUCTIONS = (ReductionType.Mean, ReductionType.Sum)


@check.guard
class JitOptions(OptionsDict):
    """The settings of `Options.Jit`, from when PopTorch traced models by TorchScript."""

    def traceModel(self, trace_model: bool) -> JitOptions:
        """Changes nothing: models are always traced by `torch.export`.

        Raises:
          Error: tracing by TorchScript is asked for; the original stopped doing that as well.
        """
        if check.require_flag(trace_model, "trace_model"):
            raise check.value_error(
                "options.Jit.traceModel(True) is no longer supported", "omit it"
            )
        logger.warning("[Deprecated] options.Jit.traceModel(False) is what always happens.")
        return self


@check.guard
class PrecisionOptions(OptionsDict):
    """The settings of `Options.Precision`: dtypes, rounding, and which numbers are errors.

    Attributes:
      autocast_enabled: whether dtypes are chosen automatically where a module asks for it.
      autocast_policy: which operators then compute in which dtype.
    """

    autocast_enabled: bool
    autocast_policy: Policy

    def __init__(self, popart_options: PopartOptions):
        self._popart_options = popart_options
        super().__init__(autocast_enabled=True, autocast_policy=default)

    def autocastEnabled(self, autocast_enabled: bool) -> PrecisionOptions:
        """Sets whether `Module.autocast` and `poptorch.autocast` act, as they do by default."""
        self.set(autocast_enabled=check.require_flag(autocast_enabled, "autocastEnabled"))
        return self

    def autocastPolicy(self, autocast_policy: Policy) -> PrecisionOptions:
        """Sets which operators compute in which dtype where dtypes are chosen automatically.

        Args:
          autocast_policy: a `poptorch.autocasting.Policy`.
        """
        kind = "a poptorch.autocasting.Policy"
        check.require_instance(autocast_policy, Policy, "autocastPolicy", kind)
        self.set(autocast_policy=autocast_policy)
        return self

    def halfFloatCasting(self, half_float_casting: HalfFloatCastingBehavior) -> PrecisionOptions:
        """Changes nothing: float16 with float32 gives float32, as in PyTorch.

        Matmuls and convolutions have the dtype of their input, whatever the weights' dtype is.
        """
        kind = HalfFloatCastingBehavior
        check.require_instance(
            half_float_casting, kind, "halfFloatCasting", f"a poptorch.{kind.__name__}"
        )
        logger.warning("[Deprecated] options.Precision.halfFloatCasting() changes nothing.")
        return self

    def runningStatisticsAlwaysFloat(self, value: bool) -> PrecisionOptions:
        """Changes nothing: running statistics have the module's own dtype, as in PyTorch."""
        check.require_flag(value, "runningStatisticsAlwaysFloat")
        logger.warning(
            "[Deprecated] options.Precision.runningStatisticsAlwaysFloat() changes nothing."
        )
        return self

    def enableFloatingPointExceptions(self, enabled: bool) -> PrecisionOptions:
        """Sets whether a run raises an error where a value becomes infinite or NaN.

        Kept as `_Popart.options["enableFloatingPointChecks"]`.
        """
        flag = check.require_flag(enabled, "enableFloatingPointExceptions")
        self._popart_options.set("enableFloatingPointChecks", flag)
        return self

    def enableStochasticRounding(self, enabled: bool) -> PrecisionOptions:
        """Sets whether values are rounded to float16 stochastically, which keeps sums unbiased.

        Kept as `_Popart.options["enableStochasticRounding"]`.
        """
        flag = check.require_flag(enabled, "enableStochasticRounding")
        self._popart_options.set("enableStochasticRounding", flag)
        return self

    def setPartialsType(self, dtype: torch.dtype) -> PrecisionOptions:
        """Sets the dtype of partial sums in matmuls and convolutions.

        It changes the modelled memory and cycles, and the numbers of float16. Kept as
        `_Popart.options["partialsTypeMatMuls"]`, "float" or "half".

        Raises:
          Error: it is neither float32 nor float16.
        """
        if dtype not in (torch.float32, torch.float16):
            allowed = "torch.float or torch.half"
            raise check.wrong_type_error(allowed, dtype, "the parameter of setPartialsType")
        name = "float" if dtype == torch.float32 else "half"
        self._popart_options.set("partialsTypeMatMuls", name)
        self._popart_options.set("convolutionOptions", {"partialsType": name})
        return self


@check.guard
class TrainingOptions(OptionsDict):
    """The settings of `Options.Training`, which only a training model reads.

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
        """Sets how many micro-batches each replica runs before the weights are updated."""
        number = check.require_integer(gradient_accumulation, "gradientAccumulation", at_least=1)
        self.set(gradient_accumulation=number)
        return self

    def accumulationAndReplicationReductionType(
        self, reduction_type: ReductionType
    ) -> TrainingOptions:
        """Sets whether gradients of micro-batches and replicas are summed or averaged.

        Unless it is set, they are averaged, whatever the loss's own reduction is.

        Raises:
          Error: it is neither `ReductionType.Mean` nor `ReductionType.Sum`.
        """
        if not isinstance(reduction_type, ReductionType) or reduction_type not in _REDUCTIONS:
            allowed = "poptorch.ReductionType.Mean or poptorch.ReductionType.Sum"
            option = "accumulationAndReplicationReductionType"
            raise check.wrong_type_error(allowed, reduction_type, option)
        self.set(accumulation_and_replication_reduction_type=reduction_type)
        return self

    def setMeanAccumulationAndReplicationReductionStrategy(
        self, mean_reduction_strategy: MeanReductionStrategy
    ) -> TrainingOptions:
        """Sets when a mean of gradients is divided; to rounding, the numbers are the same."""
        name = "meanAccumulationAndReplicationReductionStrategy"
        check.require_instance(mean_reduction_strategy, MeanReductionStrategy, name)
        self.set(**{name: mean_reduction_strategy})
        return self

    def setAutomaticLossScaling(self, enabled: bool) -> TrainingOptions:
        """Sets whether the loss scaling follows the gradients, to keep float16 in range.

        The factor begins with the optimizer's `loss_scaling`. After each weight update it is
        halved if any gradient in float16 is near the greatest float16, else doubled; see
        `training.loss_scaling`. Kept as `_Popart.options["automaticLossScalingSettings.enabled"]`.
        """
        flag = check.require_flag(enabled, "setAutomaticLossScaling")
        self._popart_options.set("automaticLossScalingSettings.enabled", flag)
        return self

    def setConvolutionDithering(self, enabled: bool) -> TrainingOptions:
        """Stores whether the first tile of convolutions varies; it has no effect."""
        flag = check.require_flag(enabled, "setConvolutionDithering")
        self._popart_options.set("convolutionOptions", {"enableConvDithering": flag})
        return self


@check.guard
class DistributedOptions(OptionsDict):
    """The settings of `Options.Distributed`: this process's part in a run of several.

    A `DataLoader` gives each process its part of the data set, and `trainingModel` trains with the
    replicas of all of them. At first they are the instances that run (see `ipurun`); where there
    are none, what `mpirun` says by `OMPI_COMM_WORLD_SIZE` and `OMPI_COMM_WORLD_RANK`.

    Attributes:
      num_distributed_processes: the number of processes.
      distributed_process_id: the id of this process, from 0.
    """

    num_distributed_processes: int
    distributed_process_id: int

    def __init__(self) -> None:
        super().__init__(num_distributed_processes=1, distributed_process_id=0, ipuof_configs={})
        if local_instance := get_joined_instance():
            self._set_process(local_instance.replica_group_index, local_instance.num_replica_groups)
        else:
            self._set_process(
                *_read_process_variables("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")
            )

    def disable(self) -> DistributedOptions:
        """Makes this process train alone, whatever other processes there are."""
        return self._set_process(0, 1)

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> DistributedOptions:
        """Reads the number and the id of processes from two environment variables.

        Raises:
          Error: a variable holds no number, or the id is not below the number of processes.
        """
        return self._set_process(*_read_process_variables(var_num_processes, var_process_id))

    def configureProcessId(self, process_id: int, num_processes: int) -> DistributedOptions:
        """Sets the id of this process and the number of processes.

        Raises:
          Error: there is no such process among so many, or other instances run than these; one
            alone is always possible.
        """
        return self._set_process(process_id, num_processes)

    def _set_process(self, process_id: int, num_processes: int) -> DistributedOptions:
        number = check.require_integer(num_processes, "the number of processes", at_least=1)
        process = check.require_integer(process_id, "the id of this process", at_least=0)
        if process >= number:
            wrong = f"this is process {process} of {number}, but they count from 0"
            raise check.value_error(wrong, f"give an id from 0 to {number - 1}")
        local_instance = get_joined_instance() or Instance(process, number)
        if number > 1 and (process, number) != (
            local_instance.replica_group_index,
            local_instance.num_replica_groups,
        ):
            raise check.value_error(
                f"this would be process {process} of {number}, but it is instance "
                f"{local_instance.index} of the {local_instance.count} that run",
                "leave the call out: the options have this already; or Distributed.disable()",
            )
        self.set(distributed_process_id=process, num_distributed_processes=number)
        return self

    @property
    def processId(self) -> int:
        """The id of this process, from 0."""
        return self.distributed_process_id

    @property
    def numProcesses(self) -> int:
        """The number of processes that run the model together."""
        return self.num_distributed_processes


def _read_process_variables(var_num_processes: str, var_process_id: str) -> tuple[int, int]:
    """Reads the id and the number of processes from environment variables."""
    return _read_number_variable(var_process_id, "0"), _read_number_variable(var_num_processes, "1")


def _read_number_variable(name: str, default: str) -> int:
    value = os.environ.get(name, default)
    if not value.isdecimal():
        raise check.value_error(f"the variable {name} is {value!r}, but must be a number")
    return int(value)
