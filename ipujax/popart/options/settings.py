"""The groups of settings inside `SessionOptions`, with the original's names and defaults."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

from ipujax.ground import check_attributes
from ipujax.popart.options.option_kinds import (
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
from ipujax.popart.popart_checks import check


@check.guard
@check_attributes(check)
@dc.dataclass
class TensorLocation:
    """The storage of tensors; always the memory of the host's process here."""

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
        remaining = list(tiles_and_sharding)
        if remaining and isinstance(remaining[0], TileSet):
            loadTileSet, storageTileSet, *remaining = remaining
        self.storage, self.loadTileSet, self.storageTileSet = storage, loadTileSet, storageTileSet
        keyword_values = [replicatedTensorSharding, shardingDomain]
        self.replicatedTensorSharding, self.shardingDomain = [
            *remaining,
            *keyword_values[len(remaining) :],
        ]


@check.guard
@check_attributes(check)
@dc.dataclass
class TensorLocationSettings:
    """The storage settings of one kind of tensors; see `TensorLocation`."""

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
    """The settings of loss scaling that follows the gradients in FLOAT16.

    Every `updatePeriod` weight updates the loss scaling is halved if more than the proportion
    `thresholdUpperCountProportion` of the gradients is above `binEdgeLocation` times the greatest
    FLOAT16, and else doubled. `gradientTensorTrackingMethod` chooses the gradients that count: of
    operands of all operators that change elements, of matmuls and convolutions, or of
    `toTrackTensors`. `finalLossScale` can be anchored. The optimizer's loss scaling must not be
    constant.
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
    """The settings of phased execution: its phases run on IPUs in turn, phase p on p mod `stages`.

    The schedules change nothing: what moves between phases to and from streaming memory in the
    original stays on its IPU.
    """

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
    """The settings of splitting along the batch; they change nothing."""

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
    """The settings of the order of weight updates; they change nothing."""

    schedule: AccumulateOuterFragmentSchedule = AccumulateOuterFragmentSchedule.Serial
    excludedVirtualGraphs: list[int] = dc.field(default_factory=list[int])


@check.guard
@check_attributes(check)
@dc.dataclass
class AutodiffSettings:
    """The settings of where the backward pass takes values from; they change nothing."""

    stitchStrategy: AutodiffStitchStrategy = AutodiffStitchStrategy.RecomputeAllNonInputs


@check.guard
@check_attributes(check)
@dc.dataclass
class ReplicatedCollectivesSettings:
    """The settings of which collectives are merged; they change nothing."""

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
