"""The reading of automatic loss scaling from PopART's options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipujax.poptorch.poptorch_checks import check
from ipujax.training import LossScaling

_OPTION = "automaticLossScalingSettings."


def read_loss_scaling(options: Mapping[str, Any]) -> LossScaling | None:
    """Reads the settings of automatic loss scaling; None without it.

    Raises:
      PopTorchError: (a `ValueError`) a number that is out of its range.
    """
    if not options.get(f"{_OPTION}enabled", False):
        return None
    defaults = LossScaling()
    settings = LossScaling(
        options.get(f"{_OPTION}binEdgeLocation", defaults.bin_edge),
        options.get(f"{_OPTION}thresholdUpperCountProportion", defaults.threshold),
        options.get(f"{_OPTION}updatePeriod", defaults.period),
        options.get(f"{_OPTION}gradientTensorTrackingMethod", 0) == 1,
    )
    settings.check_ranges(check)
    return settings
