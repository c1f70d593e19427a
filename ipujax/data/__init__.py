"""Data sets, under the name that the original had for them."""

from ipujax.data import ops as ops

__all__ = ["ops"]


def __dir__() -> list[str]:
    return __all__
