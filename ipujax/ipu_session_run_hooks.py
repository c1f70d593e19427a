"""Hooks that an estimator tells of its device loops (seed 001, 18.12.4), and some to begin with."""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
