"""Lets `import` find a package of ipujax under the original's name, for unchanged scripts."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
