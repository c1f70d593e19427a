"""`IPUEstimator`: trains, evaluates and predicts with a model function in device loops.

Chapter 18.12.1 of the original's API (seed 001), with JAX's functions in the place of graphs.
"""

from __future__ import annotations

from ipujax.doors.estimators import ipu_estimator as _ipu_estimator

__all__ = [
    "IPUEstimator",
    "IPUEstimatorSpec",
    "ModeKeys",
]


def __dir__() -> list[str]:
    return __all__


IPUEstimator = _ipu_estimator.IPUEstimator
IPUEstimatorSpec = _ipu_estimator.IPUEstimatorSpec
ModeKeys = _ipu_estimator.ModeKeys
