"""The implementation of `pipelining_ops.pipeline`: turns stages into the tasks of a loop."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
