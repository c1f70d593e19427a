"""Scopes that place operations on IPUs, or attach attributes to them.

Each scope writes a mark into the name stack, which JAX carries through every transformation; under
plain `jax.jit` marks mean nothing.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
