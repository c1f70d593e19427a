"""Infeeds: a data set on the host, read element by element from inside compiled loops."""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
