"""The methods that reduce the gradients of several mini-batches to one."""

from __future__ import annotations

from ipujax.optimizers import reduction_method as _reduction_method

__all__ = [
    "GradientAccumulationReductionMethod",
]


def __dir__() -> list[str]:
    return __all__


GradientAccumulationReductionMethod = _reduction_method.GradientAccumulationReductionMethod
