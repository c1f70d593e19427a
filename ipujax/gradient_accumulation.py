"""The methods that reduce the gradients of several mini-batches to one."""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
