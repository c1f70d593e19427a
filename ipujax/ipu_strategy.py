"""`IPUStrategy`: in its scope, Keras's models are trained and used by programs on IPUs.

The slides of seed 003 and the listings of seed 002.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
