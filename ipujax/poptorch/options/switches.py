"""The switches of PopART, the original's compiler, and what each of them changes here."""

from __future__ import annotations

import dataclasses as dc
import enum
from collections.abc import Iterable, Mapping
from typing import Any

from ipujax.poptorch.checks import check
from ipujax.poptorch.log import logger


@dc.dataclass(frozen=True)
class Switch:
    """One switch of the compiler.

    Attributes:
      kinds: what its value may be; an `enum.IntEnum` counts as an int.
      effect: what it changes here; of a switch that changes nothing, why.
      neutral: the values that may be given, if others ask for what is missing here; None for all.
      asks: whether somebody who sets it waits for something that does not come, and is told so.
    """

    kinds: tuple[type, ...]
    effect: str
    neutral: tuple[Any, ...] | None = None
    asks: bool = False


_CONTAINER = (list, tuple, set, dict)
_ANY = (bool, int, float, str, *_CONTAINER)


def _named(
    names: str,
    kinds: type | tuple[type, ...],
    effect: str,
    neutral: tuple[Any, ...] | None = None,
    asks: bool = False,
) -> dict[str, Switch]:
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    return {name: Switch(kinds, effect, neutral, asks) for name in names.split()}


_LAYOUT = "nothing: it shapes the IPU's instructions and memory, which are not made here"
_ORDER = "nothing: XLA orders operations itself, and the result is the same"
_COPIES = "nothing: the host gives and takes arrays, without streams or buffers of its own"
_CHECKS = "nothing: it has the original's compiler examine itself"
_FROM_OPTIONS = "what the public options say already"
_NO_PHASES = "phased execution, which is missing: use PipelinedExecution"
_NO_DUMPS = "nothing: there is no PopART graph to write; `report()` and the log show the program"

SWITCHES: Mapping[str, Switch] = {
    # What acts.
    **_named("enableFloatingPointChecks", bool, "values that are no numbers raise"),
    **_named("enableStochasticRounding", bool, "how float16 is rounded"),
    **_named("partialsTypeMatMuls", str, "the precision of sums in products of float16"),
    **_named("engineOptions", dict, "where reports are written, and what a full IPU does"),
    **_named("cachePath", str, "the folder of compiled programs"),
    **_named("enableEngineCaching", bool, "whether compiled programs are kept"),
    **_named("updatableNamedBuffers", _CONTAINER, "buffers that can be written between runs"),
    **_named("automaticLossScalingSettings.enabled", bool, "a factor of the loss that adapts"),
    **_named("automaticLossScalingSettings.updatePeriod", int, "how often that factor changes"),
    **_named(
        "automaticLossScalingSettings.thresholdUpperCountProportion "
        "automaticLossScalingSettings.binEdgeLocation",
        (int, float),
        "which gradients make it smaller",
    ),
    **_named(
        "automaticLossScalingSettings.gradientTensorTrackingMethod",
        int,
        "which gradients it follows; tensors that the user names are missing",
        neutral=(0, 1),
    ),
    # What the options say already.
    **_named(
        "enableGradientAccumulation enablePipelining enableReplicatedGraphs "
        "enableDistributedReplicatedGraphs",
        bool,
        _FROM_OPTIONS,
    ),
    **_named("meanAccumulationAndReplicationReductionStrategy", int, _FROM_OPTIONS),
    **_named("accumulationAndReplicationReductionType", int, _FROM_OPTIONS),
    **_named("logDir", str, _FROM_OPTIONS),
    **_named("numIOTiles", int, _FROM_OPTIONS),
    **_named(
        "accumulationFactor globalReplicationFactor",
        int,
        "factors that the options' own methods set",
        neutral=(1,),
    ),
    **_named(
        "globalReplicaOffset",
        int,
        "replicas in other processes: see ipurun",
        (0,),
    ),
    # What is missing.
    **_named("executionPhaseSettings.phases executionPhaseSettings.stages", int, _NO_PHASES, (0,)),
    **_named("customCodelets", _CONTAINER, "C++ codelets, which are missing", ([], (), set())),
    **_named("compileEngine", bool, "graphs that are never compiled, which are missing", (True,)),
    **_named("constantWeights", bool, "nothing: weights are arguments of the program"),
    **_named(
        "groupNormStridedChannelGrouping",
        bool,
        "GroupNorm over every n-th channel, which is missing: PyTorch's groups are consecutive",
        neutral=(False,),
    ),
    **_named("syntheticDataMode", int, "nothing: a call computes with the inputs that it gets"),
    **_named("instrumentWithHardwareCycleCounter", bool, "nothing: cycles are always modelled"),
    # What changes the original's chip program only.
    **_named("autoRecomputation", int, _LAYOUT),
    **_named("explicitRecomputation", bool, _LAYOUT),
    **_named(
        "enableOutlining enableOutliningCopyCostPruning separateCallOpPdfs "
        "enableFullyConnectedPass enableSerializedMatmuls enableMergeExchange aliasZeroCopy "
        "decomposeGradSum "
        "batchSerializationSettings.concatOnVirtualGraphChange "
        "batchSerializationSettings.concatOnExecutionPhaseChange "
        "batchSerializationSettings.concatOnPipelineStageChange "
        "replicatedCollectivesSettings.prepareScheduleForMergingCollectives "
        "replicatedCollectivesSettings.mergeAllReduceCollectives enableStableNorm "
        "enableNonStableSoftmax ensureFp32LossScaleTensor enableSupportedDataTypeCasting",
        bool,
        _LAYOUT,
    ),
    **_named(
        "batchSerializationSettings.factor batchSerializationSettings.transformContext "
        "batchSerializationSettings.method batchSerializationSettings.batchSchedule "
        "autodiffSettings.stitchStrategy mergeVarUpdate mergeVarUpdateMemThreshold "
        "looseThresholdAtPeak subgraphCopyingStrategy virtualGraphMode "
        "accumulateOuterFragmentSettings.schedule",
        int,
        _LAYOUT,
    ),
    **_named("outlineSequenceBreakCost outlineThreshold", (int, float), _LAYOUT),
    **_named("accumulateOuterFragmentSettings.excludedVirtualGraphs", _CONTAINER, _LAYOUT),
    **_named("convolutionOptions matmulOptions lstmOptions gclOptions", dict, _LAYOUT),
    **_named("customCodeletCompileFlags", str, _LAYOUT),
    **_named("patterns", dict, "nothing: XLA has rewritings of its own"),
    **_named("patterns_level", int, "nothing: XLA has rewritings of its own"),
    **_named(
        "enableExplicitIR enableExplicitMainLoops useHostCopyOps delayVarUpdates groupHostSync "
        "scheduleNonWeightUpdateGradientConsumersEarly",
        bool,
        _ORDER,
    ),
    **_named("swapLimitScheduler transitiveClosureOptimizationThreshold", int, _ORDER),
    **_named("timeLimitScheduler", (int, float), _ORDER),
    **_named("kahnTieBreaker", str, _ORDER),
    **_named(
        "rearrangeAnchorsOnHost rearrangeStreamsOnHost enablePrefetchDatastreams "
        "disableGradAccumulationTensorStreams disableOptimizerStateTensorStreams "
        "enableLoadAndOffloadRNGState",
        bool,
        _COPIES,
    ),
    **_named("defaultBufferingDepth defaultPrefetchBufferingDepth", int, _COPIES),
    **_named(
        "strictOpVersions opxAliasChecking opxModifyChecking enableInplaceAmbiguityChecking",
        bool,
        _CHECKS,
    ),
    # Files and figures that somebody may look for.
    **_named("dotChecks hardwareInstrumentations", _CONTAINER, _NO_DUMPS, asks=True),
    **_named("reportOptions", dict, _NO_DUMPS, asks=True),
    **_named("firstDotOp finalDotOp compilationProgressTotal", int, _NO_DUMPS),
    **_named("dotOpNames", bool, _NO_DUMPS),
    **_named("exportPoplarComputationGraph exportPoplarVertexGraph", bool, _NO_DUMPS, asks=True),
    **_named("serializedPoprithmsShiftGraphsDir", str, _NO_DUMPS, asks=True),
    **_named("saveInitializersToFile", str, "nothing: weights are never part of a graph's file"),
}


def check_switches(values: Mapping[str, Any]) -> None:
    """Refuses switches that PopART never had, of wrong types, or that ask for what is missing.

    Raises:
      Error: there are such.
    """
    for name, value in values.items():
        if not isinstance(value, _ANY):
            kind = type(value).__name__
            raise check.refuse_type(f"Unknown value type {kind} for option {name}")
        switch = SWITCHES.get(name)
        if switch is None:
            raise check.refuse(
                f"Unknown PopART option {name!r} of value {value!r}",
                "see ipujax.poptorch.options.switches.SWITCHES for those that there are",
            )
        _check_kind(name, value, switch.kinds)
        if switch.neutral is not None and value not in switch.neutral:
            only = " or ".join(map(repr, switch.neutral))
            raise check.refuse(
                f"the PopART option {name!r} is {value!r}, which asks for {switch.effect}",
                f"leave it away, or give {only}",
            )


def _check_kind(name: str, value: Any, kinds: tuple[type, ...]) -> None:
    is_wrong_flag = isinstance(value, bool) and bool not in kinds
    if not isinstance(value, kinds) or is_wrong_flag:
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise check.other_than(f"of type {wanted}", value, f"the PopART option {name!r}")


def log_options(values: Mapping[str, Any]) -> None:
    """Logs what each option is set to, in the original's words; warns of what does not come."""
    for name, value in values.items():
        if name in SWITCHES and SWITCHES[name].asks:
            logger.warning("The PopART option %s changes %s.", name, SWITCHES[name].effect)
        if isinstance(value, Mapping):
            for key, entry in value.items():
                logger.debug("poptorch.Options set %s[%s] to %s", name, key, entry)
        elif isinstance(value, (list, tuple, set)):
            for entry in _in_order(value):
                logger.debug("poptorch.Options added %s to %s", entry, name)
        else:
            logger.debug("poptorch.Options set %s to value %s", name, _spelled(value))


def _in_order(entries: Iterable[Any]) -> list[Any]:
    return sorted(entries, key=str) if isinstance(entries, set) else list(entries)


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.value) if isinstance(value, enum.Enum) else str(value)
