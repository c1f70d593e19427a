"""Settings inside `SessionOptions`, with the original's names and defaults."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

from ipujax.checks.attributes import check_attributes
from ipujax.popart.checks import check
from ipujax.popart.options.kinds import (
    AccumulateOuterFragmentSchedule,
    AutodiffStitchStrategy,
    BatchSerializationBatchSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    ExecutionPhaseIOSchedule,
    ExecutionPhaseSchedule,
    GradientTensorTrackingMethod,
    ReplicatedTensorSharding,
    TensorStorage,
    TileSet,
)


@check.guard
@check_attributes(check)
@dc.dataclass
class TensorLocation:
    """Where tensors are kept; here in the memory of the host's process, whatever it says."""

    storage: TensorStorage = TensorStorage.OnChip
    loadTileSet: TileSet = TileSet.Compute
    storageTileSet: TileSet = TileSet.Compute
    replicatedTensorSharding: ReplicatedTensorSharding = ReplicatedTensorSharding.Off
    shardingDomain: Any = None

    def __init__(
        self,
        storage: TensorStorage = TensorStorage.OnChip,
        *tiles_and_sharding: Any,
        loadTileSet: TileSet = TileSet.Compute,
        storageTileSet: TileSet = TileSet.Compute,
        replicatedTensorSharding: ReplicatedTensorSharding = ReplicatedTensorSharding.Off,
        shardingDomain: Any = None,
    ):
        # By position come both tile sets or none, then the sharding and its domain.
        rest = list(tiles_and_sharding)
        if rest and isinstance(rest[0], TileSet):
            loadTileSet, storageTileSet, *rest = rest
        self.storage, self.loadTileSet, self.storageTileSet = storage, loadTileSet, storageTileSet
        given = [replicatedTensorSharding, shardingDomain]
        self.replicatedTensorSharding, self.shardingDomain = [*rest, *given[len(rest) :]]


@check.guard
@check_attributes(check)
@dc.dataclass
class TensorLocationSettings:
    """Where a kind of tensors is kept; see `TensorLocation`."""

    location: TensorLocation | TensorStorage = dc.field(default_factory=TensorLocation)
    minElementsForOffChip: int = 2
    minElementsForReplicatedTensorSharding: int = 8192

    def __post_init__(self) -> None:
        if isinstance(self.location, TensorStorage):
            self.location = TensorLocation(self.location)


@check.guard
@check_attributes(check)
@dc.dataclass
class AutomaticLossScalingSettings:
    """Loss scaling that follows the gradients in FLOAT16; the optimizer's must not be constant.

    Every `updatePeriod` weight updates the loss scaling is halved if more than the proportion
    `thresholdUpperCountProportion` of the gradients is above `binEdgeLocation` times the greatest
    FLOAT16, and else doubled. Which gradients count says `gradientTensorTrackingMethod`: those of
    all operands but of operators that change no element, those of products and convolutions, or
    those of `toTrackTensors`. `finalLossScale` can be anchored.
    """

    enabled: bool = False
    toTrackTensors: list[str] | None = None
    binEdgeLocation: float = 0.125
    thresholdUpperCountProportion: float = 1e-7
    updatePeriod: int = 1
    gradientTensorTrackingMethod: GradientTensorTrackingMethod = (
        GradientTensorTrackingMethod.AllNonViewChangingGradientTensors
    )


@check.guard
@check_attributes(check)
@dc.dataclass
class ExecutionPhaseSettings:
    """Phases that are loaded one after the other; only without them, `phases` below 2, runs."""

    phases: int = 0
    stages: int = 2
    weightIOSchedule: ExecutionPhaseIOSchedule = ExecutionPhaseIOSchedule.Preload
    activationIOSchedule: ExecutionPhaseIOSchedule = ExecutionPhaseIOSchedule.Preload
    optimizerStateIOSchedule: ExecutionPhaseIOSchedule = ExecutionPhaseIOSchedule.OnDemand
    accumulatorIOSchedule: ExecutionPhaseIOSchedule = ExecutionPhaseIOSchedule.Preload
    schedule: ExecutionPhaseSchedule = ExecutionPhaseSchedule.Interleaving


@check.guard
@check_attributes(check)
@dc.dataclass
class BatchSerializationSettings:
    """Splitting along the batch, whose results are the same; it changes nothing."""

    factor: int = 0
    concatOnVirtualGraphChange: bool = True
    concatOnExecutionPhaseChange: bool = True
    concatOnPipelineStageChange: bool = True
    transformContext: BatchSerializationTransformContext = BatchSerializationTransformContext.Fwd
    method: BatchSerializationMethod = BatchSerializationMethod.UnrollDynamic
    batchSchedule: BatchSerializationBatchSchedule = BatchSerializationBatchSchedule.Isomorphic


@check.guard
@check_attributes(check)
@dc.dataclass
class AccumulateOuterFragmentSettings:
    """The order of weight updates; it changes nothing."""

    schedule: AccumulateOuterFragmentSchedule = AccumulateOuterFragmentSchedule.Serial
    excludedVirtualGraphs: list[int] = dc.field(default_factory=list[int])


@check.guard
@check_attributes(check)
@dc.dataclass
class AutodiffSettings:
    """Where the backward pass takes values from; it changes nothing."""

    stitchStrategy: AutodiffStitchStrategy = AutodiffStitchStrategy.RecomputeAllNonInputs


@check.guard
@check_attributes(check)
@dc.dataclass
class ReplicatedCollectivesSettings:
    """Which collectives become one; it changes nothing."""

    prepareScheduleForMergingCollectives: bool = False
    mergeAllReduceCollectives: bool = False
    mergeReduceScatterCollectives: bool = False
    mergeAllGatherCollectives: bool = False


@check.guard
@check_attributes(check)
@dc.dataclass
class ExperimentalSettings:
    """The original's experiments; `customTransformApplierSettings` must stay empty."""

    customTransformApplierSettings: dict[str, list[str]] = dc.field(
        default_factory=dict[str, list[str]]
    )
    createHostTransferableTensorWithOffset: bool = False
