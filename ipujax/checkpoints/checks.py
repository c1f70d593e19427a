"""The checks of checkpoints' arguments."""

from ipujax.checks.arguments import Checks
from ipujax.errors import CheckpointError, CheckpointTypeError

check = Checks(CheckpointTypeError, CheckpointError)
