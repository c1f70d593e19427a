from .doors.estimators.estimator_spec import ModeKeys as ModeKeys
from .doors.estimators.ipu_pipeline_estimator import IPUPipelineEstimator as IPUPipelineEstimator
from .doors.estimators.pipeline_spec import IPUPipelineEstimatorSpec as IPUPipelineEstimatorSpec
