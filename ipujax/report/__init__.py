"""Reports of a program's modelled cycles and memory: how they are made, shown and loaded.

`executable.report()` makes one, and `load` reads one from a file. `make.py` builds the report from
its parts, each in a module of its own.
"""

# The names of `__all__` are in the stub.
# pyright: reportUnsupportedDunderAll=false

import lazy_loader

__getattr__, _, _ = lazy_loader.attach_stub(__name__, __file__)

# The public names. The stub lists also the names that other rooms use.
__all__ = [
    "KINDS",
    "Cost",
    "Report",
    "load",
]


def __dir__() -> list[str]:
    return __all__
