"""The checks of what PopTorch's names are given."""

from ipujax.checks.arguments import Checks
from ipujax.errors import PopTorchError, PopTorchTypeError

check = Checks(PopTorchTypeError, PopTorchError)
