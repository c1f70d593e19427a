"""The path from a user's function to a compiled program: trace, lower, compile, call."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
