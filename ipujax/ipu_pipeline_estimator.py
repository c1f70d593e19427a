"""`IPUPipelineEstimator`: an estimator whose model is split into pipeline stages.

Chapter 18.12.2 of the original's API (seed 001).
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
