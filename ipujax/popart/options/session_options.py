"""The class `SessionOptions`: options that act, that change nothing, and that are refused."""

from __future__ import annotations

import copy
from typing import Any

from ipujax.ground import (
    MissingAttributeError,
    attribute_type,
    check_attribute_value,
    count_replica_groups,
    current_instance,
    suggest_closest_name,
)
from ipujax.popart.options import settings
from ipujax.popart.options.option_kinds import (
    Instrumentation,
    MeanReductionStrategy,
    MergeVarUpdateType,
    RecomputationType,
    ReductionType,
    SubgraphCopyingStrategy,
    SyntheticDataMode,
    VirtualGraphMode,
)
from ipujax.popart.popart_checks import check

_ACTING: dict[str, object] = {
    "accumulationFactor": 1,
    "automaticLossScalingSettings": settings.AutomaticLossScalingSettings(),
    "accumulationAndReplicationReductionType": ReductionType.Sum,
    "meanAccumulationAndReplicationReductionStrategy": MeanReductionStrategy.Post,
    "autoRecomputation": RecomputationType.NoRecompute,
    "cachePath": "session_cache",
    "compileEngine": True,
    "constantWeights": True,
    "enableDistributedReplicatedGraphs": False,
    "enableEngineCaching": False,
    "enableFloatingPointChecks": False,
    "enableGradientAccumulation": False,
    "enablePipelining": False,
    "enableReplicatedGraphs": False,
    "enableStochasticRounding": False,
    "executionPhaseSettings": settings.ExecutionPhaseSettings(),
    "globalReplicaOffset": 0,
    "globalReplicationFactor": 1,
    "groupNormStridedChannelGrouping": False,
    "replicatedGraphCount": 1,
    "syntheticDataMode": SyntheticDataMode.Off,
    "virtualGraphMode": VirtualGraphMode.Off,
}

# Options that change nothing, with what takes their role in this package.
_SCHEDULING: dict[str, object] = {  # XLA orders, merges and places operations itself
    "accumulateOuterFragmentSettings": settings.AccumulateOuterFragmentSettings(),
    "aliasZeroCopy": False,
    "autodiffSettings": settings.AutodiffSettings(),
    "batchSerializationSettings": settings.BatchSerializationSettings(),
    "createImplicitPipeliningFwdOnlyProgram": False,
    "decomposeGradSum": False,
    "delayVarUpdates": True,
    "enableConstantFoldingOfMultipleConsumers": True,
    "enableEfficientOverlapIOTopoCons": False,
    "enableExplicitMainLoops": False,
    "enableFullyConnectedPass": True,
    "enableInplaceAmbiguityChecking": False,
    "enableMergeExchange": True,
    "enableOutlining": True,
    "enableOutliningCopyCostPruning": True,
    "enableSerializedMatmuls": True,
    "experimentalSettings": settings.ExperimentalSettings(),
    "explicitRecomputation": False,
    "groupHostSync": False,
    "kahnTieBreaker": "greedy",
    "mergeVarUpdate": MergeVarUpdateType.Off,
    "mergeVarUpdateMemThreshold": 1000000,
    "numIOTiles": 0,
    "opxAliasChecking": False,
    "opxModifyChecking": False,
    "outlineSequenceBreakCost": 10000.0,
    "outlineThreshold": 1.0,
    "replicatedCollectivesSettings": settings.ReplicatedCollectivesSettings(),
    "scheduleNonWeightUpdateGradientConsumersEarly": False,
    "stashAllTensorsInferencePipeline": False,
    "subgraphCopyingStrategy": SubgraphCopyingStrategy.OnEnterAndExit,
    "swapLimitScheduler": 1000000000,
    "timeLimitScheduler": 1e9,
    "transitiveClosureOptimizationThreshold": 100000,
    "useHostCopyOps": False,
    "useLoopCandidateCreator": False,
}
_HOST: dict[str, object] = {  # the host's side: `ipujax` streams as its queues do
    "bufferingDepthMap": {},
    "defaultBufferingDepth": 1,
    "defaultPrefetchBufferingDepth": 1,
    "disableGradAccumulationTensorStreams": False,
    "disableOptimizerStateTensorStreams": False,
    "enablePrefetchDatastreams": True,
    "enableVariablesCaching": True,
    "prefetchBufferingDepthMap": {},
    "rearrangeAnchorsOnHost": True,
    "rearrangeStreamsOnHost": False,
}
_MEMORY: dict[str, object] = {  # one memory holds everything
    "accumulatorTensorLocationSettings": settings.TensorLocationSettings(),
    "activationTensorLocationSettings": settings.TensorLocationSettings(),
    "optimizerStateTensorLocationSettings": settings.TensorLocationSettings(),
    "tensorLocationSettingsOverride": {},
    "weightTensorLocationSettings": settings.TensorLocationSettings(),
}
_LIBRARIES: dict[str, object] = {  # options of Poplar and its libraries, which are not there
    "_convolutionOptions": {},
    "_enableRngStateManagement": False,
    "_engineOptions": {},
    "_gclOptions": {},
    "_lstmOptions": {},
    "_matmulOptions": {},
    "_reportOptions": {},
    "convolutionOptions": {},
    "engineOptions": {},
    "gclOptions": {},
    "lstmOptions": {},
    "matmulOptions": {},
    "reportOptions": {},
    "enableLoadAndOffloadRNGState": False,
    "enableNonStableSoftmax": False,
    "enableStableNorm": False,
    "enableSupportedDataTypeCasting": True,
    "ensureFp32LossScaleTensor": False,
    "partialsTypeMatMuls": "",
    "strictOpVersions": True,
    "throwIfLog2ScaleTensorNotInRange": True,
}
_REPORTS: dict[str, object] = {  # `getReport()` has what there is to know of a program
    "dotChecks": set(),
    "dotOpNames": False,
    "exportPoplarComputationGraph": False,
    "exportPoplarVertexGraph": False,
    "finalDotOp": 10000,
    "firstDotOp": 0,
    "hardwareInstrumentations": {Instrumentation.Outer},
    "instrumentWithHardwareCycleCounter": False,
    "logDir": "",
    "separateCallOpPdfs": True,
    "serializedPoprithmsAnnealGraphsDir": "",
    "serializedPoprithmsShiftGraphsDir": "",
}
_WITHOUT_MEANING = _SCHEDULING | _HOST | _MEMORY | _LIBRARIES | _REPORTS

# Options that would change results, or run other code, and are missing here.
_REFUSED: dict[str, object] = {
    "customCodeletCompileFlags": "",
    "customCodelets": [],
    "updatableNamedBuffers": [],
    "virtualGraphSplitRatios": [],
}


_DEFAULTS = _ACTING | _WITHOUT_MEANING | _REFUSED


@check.guard
class SessionOptions:
    """The options of a session: attributes with the original's names and defaults.

    These act: accumulationFactor with enableGradientAccumulation, replicatedGraphCount with
    enableReplicatedGraphs, accumulationAndReplicationReductionType and
    meanAccumulationAndReplicationReductionStrategy, automaticLossScalingSettings, enablePipelining,
    virtualGraphMode, executionPhaseSettings (phases on `stages` IPUs in turn, whose tensors stay
    there between phases; its other attributes change nothing), autoRecomputation,
    syntheticDataMode, compileEngine, enableFloatingPointChecks, enableStochasticRounding,
    cachePath with enableEngineCaching, groupNormStridedChannelGrouping; and of a session that
    several instances run together (see `ipurun`) enableDistributedReplicatedGraphs with
    globalReplicationFactor, the replicas of all instances, and globalReplicaOffset, the number of
    this one's first.

    These are refused unless they have their defaults: customCodelets, customCodeletCompileFlags,
    updatableNamedBuffers, virtualGraphSplitRatios.

    The weights of an `InferenceSession` can be changed if constantWeights is False.

    All others change nothing: XLA orders, merges and places operations, one memory holds all
    tensors, and the reports of `ipujax` take the place of Poplar's.

    Raises:
      AttributeError: an unknown option.
    """

    def __init__(self) -> None:
        for name, value in copy.deepcopy(_DEFAULTS).items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self.__dict__:
            raise self._unknown_option_error(name)
        expected_type = attribute_type(_DEFAULTS[name])
        object.__setattr__(
            self, name, check_attribute_value(value, expected_type, f"SessionOptions.{name}", check)
        )

    def __getattr__(self, name: str) -> Any:
        raise self._unknown_option_error(name)

    def _unknown_option_error(self, name: str) -> MissingAttributeError:
        hint = suggest_closest_name(name, self.__dict__)
        return MissingAttributeError(f"SessionOptions has no option {name!r}{hint}")

    def __deepcopy__(self, memo: dict[int, object]) -> SessionOptions:
        copied = SessionOptions()
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def enableExplicitIR(self, enable: bool) -> None:
        """Sets useHostCopyOps, enableExplicitMainLoops and explicitRecomputation."""
        value = check.require_flag(enable, "enable")
        self.useHostCopyOps = self.enableExplicitMainLoops = self.explicitRecomputation = value

    def getGlobalReplicationFactor(self) -> int:
        """Returns the number of replicas in all processes."""
        return self.globalReplicationFactor if self.is_distributed else self.replicas

    def check_supported(self) -> None:
        """Checks that the options can be followed here.

        Raises:
          PopARTError: (a `ValueError`) one cannot; the message names it.
        """
        for name, default in _REFUSED.items():
            if getattr(self, name) != default:
                raise check.value_error(
                    f"SessionOptions.{name} = {getattr(self, name)!r} cannot be done here",
                    f"leave it at {default!r}",
                )
        check.require_instance(self.virtualGraphMode, VirtualGraphMode, "virtualGraphMode")
        self._check_phases()
        check.require_instance(self.autoRecomputation, RecomputationType, "autoRecomputation")
        check.require_instance(self.syntheticDataMode, SyntheticDataMode, "syntheticDataMode")
        kind = self.accumulationAndReplicationReductionType
        if (
            check.require_instance(kind, ReductionType, "the reduction")
            is ReductionType.NoReduction
        ):
            raise check.value_error(
                "SessionOptions.accumulationAndReplicationReductionType = NoReduction",
                "say ReductionType.Sum or ReductionType.Mean",
            )
        self._check_instances()

    def _check_phases(self) -> None:
        """Checks that execution phases are asked for by both options, and without a pipeline."""
        given, mode = self.executionPhaseSettings, VirtualGraphMode.ExecutionPhases
        phases = check.require_integer(given.phases, "executionPhaseSettings.phases", at_least=0)
        check.require_integer(given.stages, "executionPhaseSettings.stages", at_least=1)
        if (phases > 1) != (self.virtualGraphMode is mode):
            raise check.value_error(
                f"SessionOptions.executionPhaseSettings.phases = {phases} and virtualGraphMode = "
                f"{self.virtualGraphMode} do not go together",
                f"for execution phases set {mode} and two phases or more; for IPUs of your own "
                "choice set VirtualGraphMode.Manual and say builder.virtualGraph(tensor, ipu)",
            )
        if phases > 1 and self.enablePipelining:
            raise check.value_error(
                "SessionOptions.enablePipelining is set together with execution phases",
                "choose one of them",
            )

    def _check_instances(self) -> None:
        """Checks that the replicas of other processes are those that run."""
        factor = check.require_integer(
            self.globalReplicationFactor, "globalReplicationFactor", at_least=1
        )
        index, count = current_instance().replica_group_index, current_instance().num_replica_groups
        offset = check.require_integer(self.globalReplicaOffset, "globalReplicaOffset", at_least=0)
        if not self.is_distributed:
            expected, fix = (1, 0), "set enableDistributedReplicatedGraphs, too"
        else:
            expected = count * self.replicas, index * self.replicas
            fix = "call popdist.popart.configureSessionOptions(options), in what ipurun starts"
        if (factor, offset) != expected:
            raise check.value_error(
                f"SessionOptions.globalReplicationFactor = {factor} and globalReplicaOffset = "
                f"{offset}, but this is instance {index} of {count} with {self.replicas} "
                f"replicas{'' if self.is_distributed else ', and its session runs alone'}",
                fix,
            )

    @property
    def is_distributed(self) -> bool:
        """Returns whether all processes run the session's program together."""
        name = "enableDistributedReplicatedGraphs"
        return check.require_flag(self.enableDistributedReplicatedGraphs, name)

    @property
    def instances(self) -> int:
        """The number of processes that run the session's program together."""
        return count_replica_groups() if self.is_distributed else 1

    @property
    def accumulation(self) -> int:
        """The number of micro-batches of a weight update."""
        factor = check.require_integer(self.accumulationFactor, "accumulationFactor", at_least=1)
        if not self.enableGradientAccumulation:
            if factor > 1:
                raise check.value_error(
                    "enableGradientAccumulation is false, but accumulationFactor > 1. It is "
                    f"{factor}",
                    "set both",
                )
            return 1
        return factor

    @property
    def replicas(self) -> int:
        """The number of replicas in this process."""
        if not self.enableReplicatedGraphs:
            return 1
        return check.require_integer(self.replicatedGraphCount, "replicatedGraphCount", at_least=1)
