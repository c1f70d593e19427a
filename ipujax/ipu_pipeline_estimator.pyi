from .doors.estimators import IPUPipelineEstimatorSpec as IPUPipelineEstimatorSpec
from .doors.estimators import ModeKeys as ModeKeys
from .doors.estimators.ipu_pipeline_estimator import IPUPipelineEstimator as IPUPipelineEstimator
