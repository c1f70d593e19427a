"""Models of other libraries as variables and JAX functions: what all front ends give."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
