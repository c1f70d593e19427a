"""The options of a PopTorch model, `poptorch.Options`, and their groups.

The names are those that the original's module has.
"""

from __future__ import annotations

from ipujax.ground import PopTorchConfigFileError as ConfigFileError
from ipujax.poptorch.options.groups import DistributedOptions as _DistributedOptions
from ipujax.poptorch.options.groups import JitOptions as _JitOptions
from ipujax.poptorch.options.groups import PrecisionOptions as _PrecisionOptions
from ipujax.poptorch.options.groups import TrainingOptions as _TrainingOptions
from ipujax.poptorch.options.locations import TensorLocationOptions as _TensorLocationOptions
from ipujax.poptorch.options.locations import TensorLocationSettings
from ipujax.poptorch.options.popart_options import PopartOptions as _PopartOptions
from ipujax.poptorch.options.poptorch_options import Options
from ipujax.poptorch.strategies import (
    AutoStage,
    Phase,
    PipelinedExecution,
    ShardedExecution,
    Stage,
)

__all__ = [
    "AutoStage",
    "ConfigFileError",
    "Options",
    "Phase",
    "PipelinedExecution",
    "ShardedExecution",
    "Stage",
    "TensorLocationSettings",
    "_DistributedOptions",
    "_JitOptions",
    "_PopartOptions",
    "_PrecisionOptions",
    "_TensorLocationOptions",
    "_TrainingOptions",
]
