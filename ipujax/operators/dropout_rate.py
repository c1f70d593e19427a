"""The check of a dropout rate."""

from __future__ import annotations

import math
from typing import Any

import jax

from ipujax.ground import check


def check_dropout_rate(rate: Any) -> float:
    """Returns the rate of dropout as a float.

    Raises:
      OperatorError: (a `ValueError`) it is not in [0, 1).
      ConfigTypeError: (a `TypeError`) it is no number that is known while tracing.
    """
    try:
        fraction = float(rate)
    except (TypeError, ValueError, jax.errors.ConcretizationTypeError):
        fraction = math.nan
    if isinstance(rate, (bool, str)) or math.isnan(fraction):
        raise check.type_error(
            f"the rate of dropout is {rate!r}, but must be a number known while tracing",
            "give a Python float, as in rate=0.1",
        )
    if not 0 <= fraction < 1:
        raise check.value_error(
            f"the rate of dropout is {rate}, but must be at least 0 and less than 1",
            "give the share of elements to drop, as in rate=0.1",
        )
    return fraction
