"""Graphcore's custom operations: functions of a compiled library, and expressions over elements.

How to write a library is in docs/custom_operations.md.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
