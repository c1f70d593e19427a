"""`IPUPipelineEstimator`: an estimator whose model is split into pipeline stages.

Chapter 18.12.2 of the original's API (seed 001).
"""

from __future__ import annotations

from ipujax.doors.estimators import ipu_pipeline_estimator as _ipu_pipeline_estimator

__all__ = [
    "IPUPipelineEstimator",
    "IPUPipelineEstimatorSpec",
    "ModeKeys",
]


def __dir__() -> list[str]:
    return __all__


IPUPipelineEstimator = _ipu_pipeline_estimator.IPUPipelineEstimator
IPUPipelineEstimatorSpec = _ipu_pipeline_estimator.IPUPipelineEstimatorSpec
ModeKeys = _ipu_pipeline_estimator.ModeKeys
