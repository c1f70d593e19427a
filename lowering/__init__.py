"""The compiler of ipujax: a jaxpr in, a Program for virtual IPUs out.

Pure functions on frozen data: no devices, no files, no environment, no global state. The order
of the passes is in `lowering.compiler`, the Program in `lowering.ir.program`. All that the rest of
ipujax may use is listed once, in `__init__.pyi`, where type checkers look for it; it is imported
when first used, so that command line tools that only need the errors start without JAX.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import Any

_LISTED = (pkgutil.get_data(__name__, "__init__.pyi") or b"").decode()
_HOMES = {n: home for home, n in re.findall(r"^from (\S+) import (\w+) as \2$", _LISTED, re.M)}


def __dir__() -> list[str]:
    return sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lowering' has no attribute {name!r}")
    module = _HOMES[name]
    if module == __name__:
        return importlib.import_module(f"{module}.{name}")
    globals()[name] = getattr(importlib.import_module(module), name)
    return globals()[name]
