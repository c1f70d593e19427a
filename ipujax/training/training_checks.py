"""The argument checks of training."""

from ipujax.ground import Checks, TrainingError, TrainingTypeError

check = Checks(TrainingTypeError, TrainingError)
