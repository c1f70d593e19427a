"""Argument checks that raise the frontends' errors."""

from ipujax.ground import Checks, FrontendError, FrontendTypeError

check = Checks(FrontendTypeError, FrontendError)
