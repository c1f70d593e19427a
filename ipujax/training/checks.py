"""The checks of training's arguments."""

from ipujax.checks.arguments import Checks
from ipujax.errors import TrainingError, TrainingTypeError

check = Checks(TrainingTypeError, TrainingError)
