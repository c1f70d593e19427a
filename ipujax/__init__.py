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

from ipujax.names import NOT_YET, NotYetFinder, not_yet, public_names
from ipujax.version import __version__ as __version__

_HOMES = public_names()

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        home = _HOMES[name]
        if home == __name__:
            return importlib.import_module(f"{home}.{name}")
        globals()[name] = getattr(importlib.import_module(home), name)
        return globals()[name]
    if name in NOT_YET:
        raise AttributeError(not_yet(name))
    raise AttributeError(f"module 'ipujax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if "IPUJAX_COORDINATOR" in os.environ:  # a process of `ipurun` meets the others first of all
    importlib.import_module("ipujax.distribution.join").join()

if NotYetFinder not in sys.meta_path:
    sys.meta_path.append(NotYetFinder)
