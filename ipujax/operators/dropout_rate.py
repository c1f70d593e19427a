"""The rate of dropout."""

from __future__ import annotations

import math
from typing import Any

import jax

from ipujax.checks.arrays import check


def checked_rate(rate: Any) -> float:
    """A rate, as a float.

    Raises:
      OperatorError: (a `ValueError`) it is not in [0, 1).
      ConfigTypeError: (a `TypeError`) it is no number that is known while tracing.
    """
    try:
        share = float(rate)
    except (TypeError, ValueError, jax.errors.ConcretizationTypeError):
        share = math.nan
    if isinstance(rate, (bool, str)) or math.isnan(share):
        raise check.refuse_type(
            f"the rate of dropout is {rate!r}, but must be a number known while tracing",
            "give a Python float, as in rate=0.1",
        )
    if not 0 <= share < 1:
        raise check.refuse(
            f"the rate of dropout is {rate}, but must be at least 0 and less than 1",
            "give the share of elements to drop, as in rate=0.1",
        )
    return share
