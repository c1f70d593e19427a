"""The compiler of ipujax: a jaxpr in, a Program for virtual IPUs out.

Pure functions on frozen data: no devices, no files, no environment, no global state. The order
of the passes is in `lowering.compiler`, the Program in `lowering.ir.program`. What is named here
is all that the rest of ipujax may use; it is imported when first used, so that command line tools
that only need the errors start without JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowering import avals as avals
    from lowering import callbacks as callbacks
    from lowering import errors as errors
    from lowering import ir as ir
    from lowering import jaxpr as jaxpr
    from lowering import machine as machine
    from lowering import marks as marks
    from lowering import pipelines as pipelines
    from lowering import placement as placement
    from lowering import refs as refs
    from lowering import schedules as schedules
    from lowering import structure as structure
    from lowering import workload as workload
    from lowering.compiler import lower as lower
    from lowering.fusion.fuse import fuse as fuse
    from lowering.fusion.fuse import is_one_kernel as is_one_kernel
    from lowering.fusion.merge_iterations import merging_pays as merging_pays
    from lowering.machine import trace as trace
    from lowering.ops import collectives as collectives
    from lowering.ops import draws as draws
    from lowering.ops import host_tables as host_tables
    from lowering.ops import norms as norms
    from lowering.ops import storage as storage
    from lowering.ops import streams as streams
    from lowering.ops import user_ops as user_ops
    from lowering.options import Options as Options
    from lowering.units import HOST as HOST

_MODULES = (
    "avals",
    "callbacks",
    "errors",
    "ir",
    "jaxpr",
    "machine",
    "marks",
    "pipelines",
    "placement",
    "refs",
    "schedules",
    "structure",
    "workload",
)
_NAMES = {
    "collectives": "lowering.ops",
    "draws": "lowering.ops",
    "host_tables": "lowering.ops",
    "norms": "lowering.ops",
    "storage": "lowering.ops",
    "streams": "lowering.ops",
    "user_ops": "lowering.ops",
    "HOST": "lowering.units",
    "Options": "lowering.options",
    "fuse": "lowering.fusion.fuse",
    "is_one_kernel": "lowering.fusion.fuse",
    "lower": "lowering.compiler",
    "merging_pays": "lowering.fusion.merge_iterations",
    "trace": "lowering.machine",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"lowering.{name}")
    if name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'lowering' has no attribute {name!r}")
