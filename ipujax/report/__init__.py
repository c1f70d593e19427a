"""Reports: a program's cost by the machine model, `executable.report()`, and `load` from a file.

The modules make reports and present them: read `make` first, then one module per part.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
