"""Enumerations of options, with the original's names and numbers."""

from ipujax.popart.numbered import NumberedEnum


class ReductionType(NumberedEnum):
    """How many values become one."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class MeanReductionStrategy(NumberedEnum):
    """When a sum over micro-batches is divided, where the mean is asked for."""

    Running = 0
    Post = 1


class RecomputationType(NumberedEnum):
    """Which activations are computed again in the backward pass."""

    NoRecompute = 0
    Standard = 1
    NormOnly = 2
    Pipeline = 3
    RecomputeAll = 4


class RecomputeType(NumberedEnum):
    """What becomes of a node's output: `Builder.recomputeOutput`."""

    Undefined = 0
    Checkpoint = 1
    Recompute = 2
    Recomputed = 3


class VirtualGraphMode(NumberedEnum):
    """Who says on which IPU nodes run: nobody, `Builder.virtualGraph`, or the session."""

    Off = 0
    Manual = 1
    Auto = 2
    ExecutionPhases = 3


class SyntheticDataMode(NumberedEnum):
    """What takes the place of the user's data."""

    Off = 0
    Zeros = 1
    RandomNormal = 2
    RandomUniform = 3


class SubgraphCopyingStrategy(NumberedEnum):
    """When inputs of subgraphs are copied."""

    OnEnterAndExit = 0
    JustInTime = 1


class MergeVarUpdateType(NumberedEnum):
    """Which weight updates became one operation."""

    Off = 0
    All = 1
    AutoLoose = 2
    AutoTight = 3


class Instrumentation(NumberedEnum):
    """What cycles were counted of."""

    Outer = 0
    Inner = 1


class IrSerializationFormat(NumberedEnum):
    """Formats of a graph that was written."""

    JSON = 0


class TileSet(NumberedEnum):
    """Tiles that computed, or that exchanged with the host."""

    Compute = 0
    IO = 1


class ExchangeStrategy(NumberedEnum):
    """When data came from the host or went there."""

    JustInTime = 0
    OverlapInnerLoop = 1
    OverlapLoops = 2
    OverlapStep = 3


class ReplicatedStreamMode(NumberedEnum):
    """Whether replicas got data of their own."""

    Replicate = 0
    Broadcast = 1


class TensorStorage(NumberedEnum):
    """Where a tensor was kept."""

    OnChip = 0
    OffChip = 1


class ReplicatedTensorSharding(NumberedEnum):
    """Whether each replica kept a part of a tensor."""

    Off = 0
    On = 1


class ExecutionPhaseIOSchedule(NumberedEnum):
    """When an execution phase loaded its tensors."""

    Preload = 0
    OnDemand = 1


class ExecutionPhaseSchedule(NumberedEnum):
    """Order of operations in an execution phase."""

    Interleaving = 0
    Batch = 1
    BatchClusteredIO = 2


class AccumulateOuterFragmentSchedule(NumberedEnum):
    """Order of the operations of weight updates."""

    Scheduler = 0
    Serial = 1
    OverlapCycleOptimized = 2
    OverlapMemoryOptimized = 3


class BatchSerializationTransformContext(NumberedEnum):
    """When the graph was split along the batch."""

    Forward = 0
    Backward = 1
    Fwd = 0
    Bwd = 1


class BatchSerializationMethod(NumberedEnum):
    """How the graph was split along the batch."""

    UnrollDynamic = 0
    UnrollStatic = 1
    Loop = 2


class BatchSerializationBatchSchedule(NumberedEnum):
    """Order of the parts of a batch."""

    Scheduler = 0
    Isomorphic = 1
    OverlapOnIo = 2
    OverlapOnCompute = 3


class AutodiffStitchStrategy(NumberedEnum):
    """Where the backward graph took its values from."""

    RecomputeMinimal = 0
    RecomputeAllNonInputs = 1
    AddFwdOutputs = 2
    SafeAddFwdOutputs = 3


class GradientTensorTrackingMethod(NumberedEnum):
    """Which gradients automatic loss scaling looks at: `AutomaticLossScalingSettings`."""

    AllNonViewChangingGradientTensors = 0
    ConvAndMatmulGradients = 1
    GradientsOfUserSpecifiedTensors = 2


class SyncPattern(NumberedEnum):
    """Which IPUs waited for each other."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class InitType(NumberedEnum):
    """What `aiGraphcore.init` fills an array with."""

    NoInit = 0
    Zero = 1


class ScatterReduction(NumberedEnum):
    """What becomes of values that are scattered to the same place."""

    Sum = 0
    Max = 1
    Min = 2
    Mul = 3
    NoReduction = 4


class TensorRemapType(NumberedEnum):
    """When the layout of a tensor changes."""

    FwdBwdReverse = 0
    FwdBwd = 1
    Fwd = 2


class CollectiveOperator(NumberedEnum):
    """What collectives make of the values of replicas."""

    Add = 0
    Mean = 1
    Mul = 2
    Min = 3
    Max = 4
    LogicalAnd = 5
    LogicalOr = 6
    SquareAdd = 7
    Local = 8
