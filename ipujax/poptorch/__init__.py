"""PopTorch: wrappers that run an unchanged PyTorch module on virtual IPUs; needs the extra `torch`.

The names are those of the original's package `poptorch`.
"""

from __future__ import annotations

from ipujax.doors.torch import check_installed

check_installed()  # before anything here imports torch

# ruff: noqa: E402
from ipujax.ground import PopTorchConfigFileError as ConfigFileError
from ipujax.ground import PopTorchError as Error
from ipujax.ground import RecoverableError, UnrecoverableError, __version__
from ipujax.poptorch import _impl as _impl
from ipujax.poptorch import _logging as _logging
from ipujax.poptorch import autocasting, optim, poptorch_core, profiling
from ipujax.poptorch.attribute import Attribute
from ipujax.poptorch.autocasting import autocast
from ipujax.poptorch.blocks import (
    BeginBlock,
    Block,
    BlockFunction,
    module_repr,
    removeBlocks,
)
from ipujax.poptorch.data import AsynchronousDataAccessor, DataLoader
from ipujax.poptorch.enums import (
    AutoStage,
    CommGroupType,
    Compiler,
    ConnectionType,
    DataLoaderMode,
    HalfFloatCastingBehavior,
    Liveness,
    MatMulSerializationMode,
    MeanReductionStrategy,
    MultiConvPlanType,
    OutputMode,
    OverlapMode,
    ReductionType,
    SharingStrategy,
    SyncPattern,
    VariableRetrievalMode,
)
from ipujax.poptorch.executor import PoplarExecutor
from ipujax.poptorch.install import install
from ipujax.poptorch.ipu_print import ipu_print_tensor
from ipujax.poptorch.missing_functions import fps, nearest
from ipujax.poptorch.module_hooks import registerPostCompileHook, registerPreCompileHook
from ipujax.poptorch.name_scope import NameScope
from ipujax.poptorch.ops import (
    ctc_beam_search_decoder,
    dynamic_slice,
    dynamic_update,
    identity_loss,
    nop,
    recomputationCheckpoint,
    serializedMatMul,
    set_available_memory,
    set_overlap_for_input,
    set_overlap_for_output,
)
from ipujax.poptorch.options import Options as Options
from ipujax.poptorch.options import _DistributedOptions as _DistributedOptions
from ipujax.poptorch.options.locations import TensorLocationSettings
from ipujax.poptorch.poptorch_checks import check as check  # for ipujax.popdist
from ipujax.poptorch.poptorch_control_flow import cond, for_loop
from ipujax.poptorch.poptorch_custom_ops import custom_op
from ipujax.poptorch.poptorch_devices import ipuHardwareIsAvailable, ipuHardwareVersion
from ipujax.poptorch.poptorch_host_calls import CPU
from ipujax.poptorch.poptorch_log import logger as logger
from ipujax.poptorch.poptorch_log import setLogLevel
from ipujax.poptorch.poptorch_multi_conv import MultiConv
from ipujax.poptorch.poptorch_operators import isRunningOnIpu
from ipujax.poptorch.poptorch_structures import ICustomArgParser, registerCustomArgParser
from ipujax.poptorch.splitting import splitOverIpus
from ipujax.poptorch.strategies import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
)
from ipujax.poptorch.torch_namespace import fill_torch_namespace
from ipujax.poptorch.wrappers import inferenceModel, load, trainingModel

fill_torch_namespace()

__all__ = [
    "CPU",
    "AsynchronousDataAccessor",
    "Attribute",
    "AutoStage",
    "BeginBlock",
    "Block",
    "BlockFunction",
    "CommGroupType",
    "Compiler",
    "ConfigFileError",
    "ConnectionType",
    "DataLoader",
    "DataLoaderMode",
    "Error",
    "HalfFloatCastingBehavior",
    "ICustomArgParser",
    "Liveness",
    "MatMulSerializationMode",
    "MeanReductionStrategy",
    "MultiConv",
    "MultiConvPlanType",
    "NameScope",
    "Options",
    "OutputMode",
    "OverlapMode",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "PoplarExecutor",
    "RecoverableError",
    "ReductionType",
    "SerialPhasedExecution",
    "ShardedExecution",
    "SharingStrategy",
    "Stage",
    "SyncPattern",
    "TensorLocationSettings",
    "UnrecoverableError",
    "VariableRetrievalMode",
    "__version__",
    "autocast",
    "autocasting",
    "cond",
    "ctc_beam_search_decoder",
    "custom_op",
    "dynamic_slice",
    "dynamic_update",
    "for_loop",
    "fps",
    "identity_loss",
    "inferenceModel",
    "install",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "ipu_print_tensor",
    "isRunningOnIpu",
    "load",
    "logger",
    "module_repr",
    "nearest",
    "nop",
    "optim",
    "poptorch_core",
    "profiling",
    "recomputationCheckpoint",
    "registerCustomArgParser",
    "registerPostCompileHook",
    "registerPreCompileHook",
    "removeBlocks",
    "serializedMatMul",
    "setLogLevel",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
    "splitOverIpus",
    "trainingModel",
]


def __dir__() -> list[str]:
    return __all__
