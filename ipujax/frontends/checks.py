"""Argument checks that raise the frontends' errors."""

from ipujax.checks.arguments import Checks
from ipujax.errors import FrontendError, FrontendTypeError

check = Checks(FrontendTypeError, FrontendError)
