"""The command line tools: `ipujax`, gc-info, gc-inventory and gc-monitor.

None of them loads JAX, and only those that show reports load NumPy, so that they start quickly.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
