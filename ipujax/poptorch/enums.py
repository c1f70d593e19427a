"""The enumerations that PopTorch's options and functions take, with the original's numbers."""

from __future__ import annotations

import enum


class OutputMode(enum.IntEnum):
    """The choice of which iterations' outputs a wrapped model returns.

    `Default` stands for `All` in inference and for `Final` in training.
    """

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4


class DataLoaderMode(enum.IntEnum):
    """The choice of how a `DataLoader` reads its data set.

    `Sync` reads when a batch is asked for. `Async` reads ahead. `AsyncRebatched` does so as well,
    and has workers give small batches that are put together afterwards, so that an iterable data
    set, which each worker reads a part of, loses less at the ends of the parts.
    """

    Sync = 0
    Async = 1
    AsyncRebatched = 2


class SharingStrategy(enum.IntEnum):
    """The way in which the original shared a data set with its reading process; here a thread."""

    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3


class ConnectionType(enum.IntEnum):
    """The choice of when a model attaches to its IPUs: at once, before its first run, or never."""

    Always = 0
    OnDemand = 1
    Never = 2


class HalfFloatCastingBehavior(enum.IntEnum):
    """The original's choice of result dtype of float16 with float32; it is float32 here."""

    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2


class ReductionType(enum.IntEnum):
    """The choice of how several values of one quantity are reduced."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class MeanReductionStrategy(enum.IntEnum):
    """The choice of when a mean of gradients is divided: each step, after the sum, or both."""

    Running = 0
    Post = 1
    PostAndLoss = 2


class SyncPattern(enum.IntEnum):
    """The choice of which IPUs wait for one another when one communicates with the host."""

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
    """The choice of where tensors are stored between the phases of a phased execution."""

    AlwaysLive = 0
    OffChipAfterFwd = 1
    OffChipAfterFwdNoOverlap = 2
    OffChipAfterEachPhase = 3


class OverlapMode(enum.Enum):
    """The choice of how far host copies of an input or output overlap with computation."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"


class AutoStage(enum.IntEnum):
    """The choice of how blocks get pipeline stages if no stages are listed.

    With `SameAsIpu` the stage is the block's IPU. With `AutoIncrement` each new block is the next
    stage, so that a model can come back to an IPU in a later stage. With `Auto`, which the original
    did not have, a plan cuts the model between its operators, whatever its blocks say: see
    `Options.autoPlan`.
    """

    SameAsIpu = 0
    AutoIncrement = 1
    Auto = 2


class MultiConvPlanType(enum.IntEnum):
    """The choice of whether the convolutions of a `MultiConv` run in parallel or in sequence."""

    Parallel = 0
    Serial = 1


class CommGroupType(enum.IntEnum):
    """The choice of which replicas form a group of k, where N = k * m replicas make groups.

    `All` of them; `Consecutive` ones, {0 .. k-1}, {k .. 2k-1} ..; `Orthogonal` ones, {0, m, 2m ..},
    {1, m+1 ..} ..; or none, each replica having its own (`NoGrouping`).
    """

    All = 0
    Consecutive = 1
    Orthogonal = 2
    NoGrouping = 3


class VariableRetrievalMode(enum.IntEnum):
    """The choice of which replicas' values of a grouped variable are read."""

    OnePerGroup = 0
    AllReplicas = 2


class Compiler(enum.IntEnum):
    """The compilers that older versions of PopTorch could choose from."""

    PopART = 0
    MLIR = 1
