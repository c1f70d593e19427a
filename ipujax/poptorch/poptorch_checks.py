"""The checker of the arguments of PopTorch's functions."""

from ipujax.ground import Checks, PopTorchError, PopTorchTypeError

check = Checks(PopTorchTypeError, PopTorchError)
