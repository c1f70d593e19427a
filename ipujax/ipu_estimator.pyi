from .doors.estimators.estimator_spec import IPUEstimatorSpec as IPUEstimatorSpec
from .doors.estimators.estimator_spec import ModeKeys as ModeKeys
from .doors.estimators.ipu_estimator import IPUEstimator as IPUEstimator
