"""`IPUEstimator`: trains, evaluates and predicts with a model function in device loops.

Chapter 18.12.1 of the original's API (seed 001), with JAX's functions in the place of graphs.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
