"""The original's `compile`: compiles a computation and runs it on its inputs at once."""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
