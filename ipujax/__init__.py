"""The Graphcore IPU programming model on JAX.

`ipu.compile` traces a JAX function, places it on virtual IPUs, lowers it to a Poplar-like Program
and runs that with XLA kernels. The submodules carry the names of the original's Python API; they
are imported when first used, so that command line tools start fast.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import lazy_loader

from ipujax.ground import NOT_YET, NotYetFinder, describe_missing_name
from ipujax.ground import __version__ as __version__

_load, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return _load(name)
    if name in NOT_YET:
        raise AttributeError(describe_missing_name(name))
    raise AttributeError(f"module 'ipujax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})


if "IPUJAX_COORDINATOR" in os.environ:  # a process of `ipurun` meets the others first of all
    importlib.import_module("ipujax.ground").join_instances()

if NotYetFinder not in sys.meta_path:
    sys.meta_path.append(NotYetFinder)
