"""The enumerations of options, with the original's names and numbers."""

from ipujax.popart.numbered_enum import NumberedEnum


class ReductionType(NumberedEnum):
    """The choice of how several values are reduced to one."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class MeanReductionStrategy(NumberedEnum):
    """The choice of when a mean over micro-batches divides the sum."""

    Running = 0
    Post = 1


class RecomputationType(NumberedEnum):
    """The choice of which activations are recomputed in the backward pass."""

    NoRecompute = 0
    Standard = 1
    NormOnly = 2
    Pipeline = 3
    RecomputeAll = 4


class RecomputeType(NumberedEnum):
    """The choice of whether a node's output is recomputed: see `Builder.recomputeOutput`."""

    Undefined = 0
    Checkpoint = 1
    Recompute = 2
    Recomputed = 3


class VirtualGraphMode(NumberedEnum):
    """The choice of who places nodes on IPUs: nobody, `Builder.virtualGraph`, or the session."""

    Off = 0
    Manual = 1
    Auto = 2
    ExecutionPhases = 3


class SyntheticDataMode(NumberedEnum):
    """The choice of data that replaces the user's."""

    Off = 0
    Zeros = 1
    RandomNormal = 2
    RandomUniform = 3


class SubgraphCopyingStrategy(NumberedEnum):
    """The choice of when inputs of subgraphs are copied."""

    OnEnterAndExit = 0
    JustInTime = 1


class MergeVarUpdateType(NumberedEnum):
    """The choice of which weight updates are merged into one operation."""

    Off = 0
    All = 1
    AutoLoose = 2
    AutoTight = 3


class Instrumentation(NumberedEnum):
    """The choice of what cycles are counted for."""

    Outer = 0
    Inner = 1


class IrSerializationFormat(NumberedEnum):
    """The choice of format of a serialized graph."""

    JSON = 0


class TileSet(NumberedEnum):
    """The choice of tiles: those that compute, or those that exchange with the host."""

    Compute = 0
    IO = 1


class ExchangeStrategy(NumberedEnum):
    """The choice of when data are exchanged with the host."""

    JustInTime = 0
    OverlapInnerLoop = 1
    OverlapLoops = 2
    OverlapStep = 3


class ReplicatedStreamMode(NumberedEnum):
    """The choice of whether each replica gets its own data, or all get the same."""

    Replicate = 0
    Broadcast = 1


class TensorStorage(NumberedEnum):
    """The choice of where a tensor is stored."""

    OnChip = 0
    OffChip = 1


class ReplicatedTensorSharding(NumberedEnum):
    """The choice of whether each replica stores only a part of a tensor."""

    Off = 0
    On = 1


class ExecutionPhaseIOSchedule(NumberedEnum):
    """The choice of when an execution phase loads its tensors."""

    Preload = 0
    OnDemand = 1


class ExecutionPhaseSchedule(NumberedEnum):
    """The order of operations in an execution phase."""

    Interleaving = 0
    Batch = 1
    BatchClusteredIO = 2


class AccumulateOuterFragmentSchedule(NumberedEnum):
    """The order of the operations of weight updates."""

    Scheduler = 0
    Serial = 1
    OverlapCycleOptimized = 2
    OverlapMemoryOptimized = 3


class BatchSerializationTransformContext(NumberedEnum):
    """The choice of when the graph is split along the batch."""

    Forward = 0
    Backward = 1
    Fwd = 0
    Bwd = 1


class BatchSerializationMethod(NumberedEnum):
    """The choice of how the graph is split along the batch."""

    UnrollDynamic = 0
    UnrollStatic = 1
    Loop = 2


class BatchSerializationBatchSchedule(NumberedEnum):
    """The order of the parts of a batch."""

    Scheduler = 0
    Isomorphic = 1
    OverlapOnIo = 2
    OverlapOnCompute = 3


class AutodiffStitchStrategy(NumberedEnum):
    """The choice of where the backward graph takes its values from."""

    RecomputeMinimal = 0
    RecomputeAllNonInputs = 1
    AddFwdOutputs = 2
    SafeAddFwdOutputs = 3


class GradientTensorTrackingMethod(NumberedEnum):
    """The choice of gradients of automatic loss scaling: see `AutomaticLossScalingSettings`."""

    AllNonViewChangingGradientTensors = 0
    ConvAndMatmulGradients = 1
    GradientsOfUserSpecifiedTensors = 2


class SyncPattern(NumberedEnum):
    """The choice of which IPUs wait for each other."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class InitType(NumberedEnum):
    """The choice of what `aiGraphcore.init` fills an array with."""

    NoInit = 0
    Zero = 1


class ScatterReduction(NumberedEnum):
    """The choice of how values that are scattered to the same index are reduced."""

    Sum = 0
    Max = 1
    Min = 2
    Mul = 3
    NoReduction = 4


class TensorRemapType(NumberedEnum):
    """The choice of when the layout of a tensor changes."""

    FwdBwdReverse = 0
    FwdBwd = 1
    Fwd = 2


class CollectiveOperator(NumberedEnum):
    """The choice of how collectives combine the values of replicas."""

    Add = 0
    Mean = 1
    Mul = 2
    Min = 3
    Max = 4
    LogicalAnd = 5
    LogicalOr = 6
    SquareAdd = 7
    Local = 8
