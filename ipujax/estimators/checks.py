"""The checks of estimators' arguments."""

from ipujax.checks.arguments import Checks
from ipujax.errors import EstimatorError, EstimatorTypeError

check = Checks(EstimatorTypeError, EstimatorError)
