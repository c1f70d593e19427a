"""The choices that PopTorch's options and functions take, with the numbers of the original."""

from __future__ import annotations

import enum


class OutputMode(enum.IntEnum):
    """Which outputs of a wrapped model's iterations come back.

    `Default` stands for `All` in inference and for `Final` in training.
    """

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4


class DataLoaderMode(enum.IntEnum):
    """How a `DataLoader` reads its data set.

    `Sync` reads when a batch is asked for. `Async` reads ahead. `AsyncRebatched` does so as well,
    and has workers give small batches that are put together afterwards, so that an iterable data
    set, which each worker reads a part of, loses less at the ends of the parts.
    """

    Sync = 0
    Async = 1
    AsyncRebatched = 2


class SharingStrategy(enum.IntEnum):
    """How the original gave a data set to the process that reads ahead; here it is a thread."""

    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3


class ConnectionType(enum.IntEnum):
    """When a model attaches to its IPUs: at once, before its first run, or never."""

    Always = 0
    OnDemand = 1
    Never = 2


class HalfFloatCastingBehavior(enum.IntEnum):
    """What became of float16 beside float32; as in PyTorch, the result is float32 ever since."""

    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2


class ReductionType(enum.IntEnum):
    """What becomes of several values of one quantity."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class MeanReductionStrategy(enum.IntEnum):
    """When a mean of gradients is divided: at each step, after the sum, or before and after it."""

    Running = 0
    Post = 1
    PostAndLoss = 2


class SyncPattern(enum.IntEnum):
    """Which IPUs wait for one another when one of them speaks to the host."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class MatMulSerializationMode(enum.Enum):
    """The dimension along which a serialised product of matrices is cut."""

    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class Liveness(enum.IntEnum):
    """Where tensors are between the phases of a phased execution."""

    AlwaysLive = 0
    OffChipAfterFwd = 1
    OffChipAfterFwdNoOverlap = 2
    OffChipAfterEachPhase = 3


class OverlapMode(enum.Enum):
    """How far ahead the host copies an input or output while the IPUs compute."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"


class AutoStage(enum.IntEnum):
    """How blocks get pipeline stages where nobody has listed the stages.

    With `SameAsIpu` the stage is the block's IPU. With `AutoIncrement` each new block is the next
    stage, so that a model can come back to an IPU in a later stage.
    """

    SameAsIpu = 0
    AutoIncrement = 1


class MultiConvPlanType(enum.IntEnum):
    """Whether the convolutions of a `MultiConv` run beside or after one another."""

    Parallel = 0
    Serial = 1


class CommGroupType(enum.IntEnum):
    """Which replicas share an input or a variable, where groups have k of N = k * m replicas.

    `All` of them; `Consecutive` ones, {0 .. k-1}, {k .. 2k-1} ..; `Orthogonal` ones, {0, m, 2m ..},
    {1, m+1 ..} ..; or none, each replica having its own (`NoGrouping`).
    """

    All = 0
    Consecutive = 1
    Orthogonal = 2
    NoGrouping = 3


class VariableRetrievalMode(enum.IntEnum):
    """Which replicas' values of a grouped variable are read: one of each group, or all."""

    OnePerGroup = 0
    AllReplicas = 2


class Compiler(enum.IntEnum):
    """The compilers that older versions of PopTorch could choose from."""

    PopART = 0
    MLIR = 1
