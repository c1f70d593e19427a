"""Histograms, and evenly spaced levels for them."""

from __future__ import annotations

from ipujax.operators import statistics as _statistics

__all__ = [
    "fixed_width_bins",
    "histogram",
    "histogram_update",
]


def __dir__() -> list[str]:
    return __all__


fixed_width_bins = _statistics.fixed_width_bins
histogram = _statistics.histogram
histogram_update = _statistics.histogram_update
