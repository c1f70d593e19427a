"""Data set wrappers."""

from ipujax.data.ops import dataset_ops as dataset_ops

__all__ = ["dataset_ops"]


def __dir__() -> list[str]:
    return __all__
