"""The seed's `tensorflow.python.ipu.map_gradient_optimizer`: see `ipujax.optimizers`."""

from __future__ import annotations

from ipujax.optimizers import MapGradientOptimizer as MapGradientOptimizer

__all__ = ["MapGradientOptimizer"]


def __dir__() -> list[str]:
    return __all__
