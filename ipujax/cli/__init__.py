"""The command line tools: `ipujax`, gc-info and the others of their kind.

None of them loads JAX, and only those that show reports or ask the machine model load NumPy, so
that they start quickly.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
