"""Embeddings: lookups in tables on the device, and in tables that stay on the host."""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
