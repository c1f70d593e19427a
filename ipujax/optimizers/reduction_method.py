"""The methods that reduce the gradients of several mini-batches to one."""

from __future__ import annotations

import enum
from typing import Any

from ipujax.ground import OptimizerError, OptimizerTypeError


class GradientAccumulationReductionMethod(enum.Enum):
    """A method that reduces the accumulated gradients of N mini-batches.

    Attributes:
      SUM: their sum, as in the original.
      MEAN: their sum, each divided by N before it is added.
      RUNNING_MEAN: after each mini-batch, the mean of the gradients so far: it never grows beyond
        their range, which keeps half precision from overflowing.
    """

    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2


def parse_reduction_method(method: Any) -> GradientAccumulationReductionMethod:
    """Returns the reduction method that a caller passed as a value or a name.

    Args:
      method: a `GradientAccumulationReductionMethod`, or the name of one in any case.

    Raises:
      OptimizerTypeError: (a `TypeError`) neither of the two.
      OptimizerError: (a `ValueError`) an unknown name.
    """
    if isinstance(method, GradientAccumulationReductionMethod):
        return method
    method_of_name = GradientAccumulationReductionMethod.__members__
    fix = f"give one of {', '.join(method_of_name)}"
    if not isinstance(method, str):
        expected = "a GradientAccumulationReductionMethod or its name"
        raise OptimizerTypeError(f"a reduction method is {expected}, not {method!r}", fix=fix)
    if method.upper() not in method_of_name:
        raise OptimizerError(f"there is no reduction method {method!r}", fix=fix)
    return method_of_name[method.upper()]
