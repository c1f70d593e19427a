"""Functions that read and propagate the shards of a jaxpr's equations.

The original's act on TensorFlow's operations and graphs; these act on equations and jaxprs, as
`jax.make_jaxpr(fn)(*args)` gives them. None is needed to compile a program.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
