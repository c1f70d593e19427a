"""Sums and means over replicas, and a marker for values that are equal on all replicas."""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
