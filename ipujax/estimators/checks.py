"""The checks of estimators' arguments."""

from ipujax.checks.arrays import ArrayChecks
from ipujax.errors import EstimatorError, EstimatorTypeError

check = ArrayChecks(EstimatorTypeError, EstimatorError)
