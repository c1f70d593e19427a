"""The checker of the arguments of PopTorch's functions."""

from ipujax.checks.arguments import Checks
from ipujax.errors import PopTorchError, PopTorchTypeError

check = Checks(PopTorchTypeError, PopTorchError)
