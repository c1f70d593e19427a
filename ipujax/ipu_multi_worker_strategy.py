"""`IPUMultiWorkerStrategy`: workers that train together, each a process that `ipurun` starts.

Sources: seed 001, 18.9; facts distributed.mw_*.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
