"""The seed's `tensorflow.python.ipu.cross_replica_optimizer`: see `ipujax.optimizers`."""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
