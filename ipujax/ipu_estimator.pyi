from .doors.estimators import IPUEstimatorSpec as IPUEstimatorSpec
from .doors.estimators import ModeKeys as ModeKeys
from .doors.estimators.ipu_estimator import IPUEstimator as IPUEstimator
