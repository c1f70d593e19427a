"""Reports: a program's cost by the machine model, `executable.report()`, and `load` from a file.

The modules make reports and present them: read `make` first, then one module per part.
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
