"""The Graphcore IPU programming model on JAX.

`ipu.compile` traces a JAX function, places it on virtual IPUs, lowers it to a Poplar-like Program
and runs that with XLA kernels. The submodules carry the names of the original's Python API; they
are imported when first used, so that command line tools start fast.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from ipujax._migration import NOT_YET, NotYetFinder, not_yet

if TYPE_CHECKING:
    from ipujax import all_to_all_op as all_to_all_op
    from ipujax import comparison as comparison
    from ipujax import config as config
    from ipujax import cross_replica_ops as cross_replica_ops
    from ipujax import custom_ops as custom_ops
    from ipujax import data as data
    from ipujax import dataset_benchmark as dataset_benchmark
    from ipujax import embedding_ops as embedding_ops
    from ipujax import errors as errors
    from ipujax import events as events
    from ipujax import functional_ops as functional_ops
    from ipujax import gradient_accumulation as gradient_accumulation
    from ipujax import host_trace as host_trace
    from ipujax import image_ops as image_ops
    from ipujax import internal_ops as internal_ops
    from ipujax import ipu_compiler as ipu_compiler
    from ipujax import ipu_infeed_queue as ipu_infeed_queue
    from ipujax import ipu_outfeed_queue as ipu_outfeed_queue
    from ipujax import loops as loops
    from ipujax import math_ops as math_ops
    from ipujax import nn_ops as nn_ops
    from ipujax import normalization_ops as normalization_ops
    from ipujax import ops as ops
    from ipujax import optimizers as optimizers
    from ipujax import pipelining_ops as pipelining_ops
    from ipujax import pva as pva
    from ipujax import rand_ops as rand_ops
    from ipujax import reduce_scatter_op as reduce_scatter_op
    from ipujax import replication_ops as replication_ops
    from ipujax import report as report
    from ipujax import rnn_ops as rnn_ops
    from ipujax import schedules as schedules
    from ipujax import scopes as scopes
    from ipujax import sharding as sharding
    from ipujax import slicing_ops as slicing_ops
    from ipujax import statistics_ops as statistics_ops
    from ipujax import summary_ops as summary_ops
    from ipujax import targets as targets
    from ipujax import utils as utils
    from ipujax._report.tile_mapping import tile_mapping as tile_mapping
    from ipujax.comparison import compare as compare
    from ipujax.compiler import compile as compile
    from ipujax.optimizers import cross_replica_optimizer as cross_replica_optimizer
    from ipujax.optimizers import gradient_accumulation_optimizer as gradient_accumulation_optimizer
    from ipujax.optimizers import map_gradient_optimizer as map_gradient_optimizer
    from ipujax.optimizers import sharded_optimizer as sharded_optimizer

__version__ = "0.1.0"

MODULES = (
    "all_to_all_op",
    "comparison",
    "config",
    "cross_replica_ops",
    "custom_ops",
    "data",
    "dataset_benchmark",
    "embedding_ops",
    "errors",
    "events",
    "functional_ops",
    "gradient_accumulation",
    "host_trace",
    "image_ops",
    "internal_ops",
    "ipu_compiler",
    "ipu_infeed_queue",
    "ipu_outfeed_queue",
    "loops",
    "math_ops",
    "nn_ops",
    "normalization_ops",
    "ops",
    "optimizers",
    "pipelining_ops",
    "pva",
    "rand_ops",
    "reduce_scatter_op",
    "replication_ops",
    "report",
    "rnn_ops",
    "schedules",
    "scopes",
    "sharding",
    "slicing_ops",
    "statistics_ops",
    "summary_ops",
    "targets",
    "utils",
)

# The original had these beside `optimizers` as well as in it.
OPTIMIZERS = (
    "cross_replica_optimizer",
    "gradient_accumulation_optimizer",
    "map_gradient_optimizer",
    "sharded_optimizer",
)

# Functions, and the modules that they are in.
FUNCTIONS = {
    "compare": "ipujax.comparison",
    "compile": "ipujax.compiler",
    "tile_mapping": "ipujax._report.tile_mapping",
}

__all__ = [*MODULES, *OPTIMIZERS, *FUNCTIONS]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in FUNCTIONS:
        function = getattr(importlib.import_module(FUNCTIONS[name]), name)
        globals()[name] = function
        return function
    if name in MODULES:
        return importlib.import_module(f"ipujax.{name}")
    if name in OPTIMIZERS:
        return importlib.import_module(f"ipujax.optimizers.{name}")
    if name in NOT_YET:
        raise AttributeError(not_yet(name))
    raise AttributeError(f"module 'ipujax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


if NotYetFinder not in sys.meta_path:
    sys.meta_path.append(NotYetFinder)
