"""What options say of automatic loss scaling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipujax.poptorch.checks import check
from ipujax.training.loss_scaling import LossScaling

_OPTION = "automaticLossScalingSettings."


def loss_scaling_of(options: Mapping[str, Any]) -> LossScaling | None:
    """What PopART's options say; None without automatic loss scaling.

    Raises:
      PopTorchError: (a `ValueError`) a number that is out of its range.
    """
    if not options.get(f"{_OPTION}enabled", False):
        return None
    usual = LossScaling()
    found = LossScaling(
        options.get(f"{_OPTION}binEdgeLocation", usual.bin_edge),
        options.get(f"{_OPTION}thresholdUpperCountProportion", usual.threshold),
        options.get(f"{_OPTION}updatePeriod", usual.period),
        options.get(f"{_OPTION}gradientTensorTrackingMethod", 0) == 1,
    )
    found.check_ranges(check)
    return found
