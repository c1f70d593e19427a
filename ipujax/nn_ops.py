"""Primitive neural network operators of Popnn (seed 001, 18.14.7)."""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
