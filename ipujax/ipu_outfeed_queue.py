"""Outfeeds: values sent from inside compiled code, collected on the host while it runs."""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
