"""The compiler of ipujax: a jaxpr in, a Program for virtual IPUs out.

Pure functions on frozen data: no devices, no files, no environment, no global state. The order
of the passes is in `lowering.compiler`, the Program in `lowering.ir.program`. All that the rest of
ipujax may use is listed once, in `__init__.pyi`, where type checkers look for it; it is imported
when first used, so that command line tools that only need the errors start without JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
