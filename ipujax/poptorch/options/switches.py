"""The switches of PopART, the original's compiler, and what each of them changes here."""

from __future__ import annotations

import dataclasses as dc
import enum
from collections.abc import Iterable, Mapping

from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_log import logger


@dc.dataclass(frozen=True)
class Switch:
    """The type, effect and allowed values of one switch of PopART.

    Attributes:
      kinds: the types that its value may have; an `enum.IntEnum` counts as an int.
      effect: a description of what it changes here, or of why it changes nothing.
      neutral: the allowed values, where all others ask for something missing here; None for all.
      asks: whether to warn its user that the files or figures it asks for are not made.
    """

    kinds: tuple[type, ...]
    effect: str
    neutral: tuple[object, ...] | None = None
    asks: bool = False


_CONTAINER = (list, tuple, set, dict)
_ANY = (bool, int, float, str, *_CONTAINER)


def _define_switches(
    names: str,
    kinds: type | tuple[type, ...],
    effect: str,
    neutral: tuple[object, ...] | None = None,
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
    # Switches that act.
    **_define_switches("enableFloatingPointChecks", bool, "values that are no numbers raise"),
    **_define_switches("enableStochasticRounding", bool, "how float16 is rounded"),
    **_define_switches(
        "groupNormStridedChannelGrouping",
        bool,
        "whether the groups of GroupNorm are every n-th channel, not consecutive ones",
    ),
    **_define_switches("partialsTypeMatMuls", str, "the precision of sums in products of float16"),
    **_define_switches(
        "engineOptions", dict, "where reports are written, and what a full IPU does"
    ),
    **_define_switches("cachePath", str, "the folder of compiled programs"),
    **_define_switches("enableEngineCaching", bool, "whether compiled programs are kept"),
    **_define_switches(
        "updatableNamedBuffers", _CONTAINER, "buffers that can be written between runs"
    ),
    **_define_switches(
        "automaticLossScalingSettings.enabled", bool, "a factor of the loss that adapts"
    ),
    **_define_switches(
        "automaticLossScalingSettings.updatePeriod", int, "how often that factor changes"
    ),
    **_define_switches(
        "automaticLossScalingSettings.thresholdUpperCountProportion "
        "automaticLossScalingSettings.binEdgeLocation",
        (int, float),
        "which gradients make it smaller",
    ),
    **_define_switches(
        "automaticLossScalingSettings.gradientTensorTrackingMethod",
        int,
        "which gradients it follows; tensors that the user names are missing",
        neutral=(0, 1),
    ),
    # Switches that the public options set already.
    **_define_switches(
        "enableGradientAccumulation enablePipelining enableReplicatedGraphs "
        "enableDistributedReplicatedGraphs",
        bool,
        _FROM_OPTIONS,
    ),
    **_define_switches("meanAccumulationAndReplicationReductionStrategy", int, _FROM_OPTIONS),
    **_define_switches("accumulationAndReplicationReductionType", int, _FROM_OPTIONS),
    **_define_switches("logDir", str, _FROM_OPTIONS),
    **_define_switches("numIOTiles", int, _FROM_OPTIONS),
    **_define_switches(
        "accumulationFactor globalReplicationFactor",
        int,
        "factors that the options' own methods set",
        neutral=(1,),
    ),
    **_define_switches(
        "globalReplicaOffset",
        int,
        "replicas in other processes: see ipurun",
        (0,),
    ),
    # Switches that ask for something missing.
    **_define_switches(
        "executionPhaseSettings.phases executionPhaseSettings.stages", int, _NO_PHASES, (0,)
    ),
    **_define_switches(
        "customCodelets", _CONTAINER, "C++ codelets, which are missing", ([], (), set())
    ),
    **_define_switches(
        "compileEngine", bool, "graphs that are never compiled, which are missing", (True,)
    ),
    **_define_switches("constantWeights", bool, "nothing: weights are arguments of the program"),
    **_define_switches(
        "syntheticDataMode", int, "nothing: a call computes with the inputs that it gets"
    ),
    **_define_switches(
        "instrumentWithHardwareCycleCounter", bool, "nothing: cycles are always modelled"
    ),
    # Switches that only change the original's program for the chip.
    **_define_switches("autoRecomputation", int, _LAYOUT),
    **_define_switches("explicitRecomputation", bool, _LAYOUT),
    **_define_switches(
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
    **_define_switches(
        "batchSerializationSettings.factor batchSerializationSettings.transformContext "
        "batchSerializationSettings.method batchSerializationSettings.batchSchedule "
        "autodiffSettings.stitchStrategy mergeVarUpdate mergeVarUpdateMemThreshold "
        "looseThresholdAtPeak subgraphCopyingStrategy virtualGraphMode "
        "accumulateOuterFragmentSettings.schedule",
        int,
        _LAYOUT,
    ),
    **_define_switches("outlineSequenceBreakCost outlineThreshold", (int, float), _LAYOUT),
    **_define_switches(
        "accumulateOuterFragmentSettings.excludedVirtualGraphs", _CONTAINER, _LAYOUT
    ),
    **_define_switches("convolutionOptions matmulOptions lstmOptions gclOptions", dict, _LAYOUT),
    **_define_switches("customCodeletCompileFlags", str, _LAYOUT),
    **_define_switches("patterns", dict, "nothing: XLA has rewritings of its own"),
    **_define_switches("patterns_level", int, "nothing: XLA has rewritings of its own"),
    **_define_switches(
        "enableExplicitIR enableExplicitMainLoops useHostCopyOps delayVarUpdates groupHostSync "
        "scheduleNonWeightUpdateGradientConsumersEarly",
        bool,
        _ORDER,
    ),
    **_define_switches("swapLimitScheduler transitiveClosureOptimizationThreshold", int, _ORDER),
    **_define_switches("timeLimitScheduler", (int, float), _ORDER),
    **_define_switches("kahnTieBreaker", str, _ORDER),
    **_define_switches(
        "rearrangeAnchorsOnHost rearrangeStreamsOnHost enablePrefetchDatastreams "
        "disableGradAccumulationTensorStreams disableOptimizerStateTensorStreams "
        "enableLoadAndOffloadRNGState",
        bool,
        _COPIES,
    ),
    **_define_switches("defaultBufferingDepth defaultPrefetchBufferingDepth", int, _COPIES),
    **_define_switches(
        "strictOpVersions opxAliasChecking opxModifyChecking enableInplaceAmbiguityChecking",
        bool,
        _CHECKS,
    ),
    # Switches for files and figures that a user may expect.
    **_define_switches("dotChecks hardwareInstrumentations", _CONTAINER, _NO_DUMPS, asks=True),
    **_define_switches("reportOptions", dict, _NO_DUMPS, asks=True),
    **_define_switches("firstDotOp finalDotOp compilationProgressTotal", int, _NO_DUMPS),
    **_define_switches("dotOpNames", bool, _NO_DUMPS),
    **_define_switches(
        "exportPoplarComputationGraph exportPoplarVertexGraph", bool, _NO_DUMPS, asks=True
    ),
    **_define_switches("serializedPoprithmsShiftGraphsDir", str, _NO_DUMPS, asks=True),
    **_define_switches(
        "saveInitializersToFile", str, "nothing: weights are never part of a graph's file"
    ),
}


def check_switches(values: Mapping[str, object]) -> None:
    """Checks that PopART switches exist, have the right types and ask for nothing missing here.

    Raises:
      Error: a switch does not.
    """
    for name, value in values.items():
        if not isinstance(value, _ANY):
            kind = type(value).__name__
            raise check.type_error(f"Unknown value type {kind} for option {name}")
        switch = SWITCHES.get(name)
        if switch is None:
            raise check.value_error(
                f"Unknown PopART option {name!r} of value {value!r}",
                "see ipujax.poptorch.options.switches.SWITCHES for all of them",
            )
        _check_switch_type(name, value, switch.kinds)
        if switch.neutral is not None and value not in switch.neutral:
            allowed = " or ".join(map(repr, switch.neutral))
            raise check.value_error(
                f"the PopART option {name!r} is {value!r}, which asks for {switch.effect}",
                f"leave it away, or give {allowed}",
            )


def _check_switch_type(name: str, value: object, kinds: tuple[type, ...]) -> None:
    is_wrong_flag = isinstance(value, bool) and bool not in kinds
    if not isinstance(value, kinds) or is_wrong_flag:
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise check.wrong_type_error(f"of type {expected}", value, f"the PopART option {name!r}")


def log_options(values: Mapping[str, object]) -> None:
    """Logs each option's value in the original's words, and warns of options without effect."""
    for name, value in values.items():
        if name in SWITCHES and SWITCHES[name].asks:
            logger.warning("The PopART option %s changes %s.", name, SWITCHES[name].effect)
        if isinstance(value, Mapping):
            for key, entry in value.items():
                logger.debug("poptorch.Options set %s[%s] to %s", name, key, entry)
        elif isinstance(value, (list, tuple, set)):
            for entry in _list_and_sort_if_set(value):
                logger.debug("poptorch.Options added %s to %s", entry, name)
        else:
            logger.debug("poptorch.Options set %s to value %s", name, _format_option_value(value))


def _list_and_sort_if_set(entries: Iterable[object]) -> list[object]:
    return sorted(entries, key=str) if isinstance(entries, set) else list(entries)


def _format_option_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.value) if isinstance(value, enum.Enum) else str(value)
