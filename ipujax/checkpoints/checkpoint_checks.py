"""The argument checks of checkpoints."""

from ipujax.ground import CheckpointError, CheckpointTypeError, Checks

check = Checks(CheckpointTypeError, CheckpointError)
