"""The argument checks of checkpoints."""

from ipujax.checks.arguments import Checks
from ipujax.errors import CheckpointError, CheckpointTypeError

check = Checks(CheckpointTypeError, CheckpointError)
