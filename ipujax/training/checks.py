"""The argument checks of training."""

from ipujax.checks.arguments import Checks
from ipujax.errors import TrainingError, TrainingTypeError

check = Checks(TrainingTypeError, TrainingError)
