"""The checks of front ends' arguments."""

from ipujax.checks.arguments import Checks
from ipujax.errors import FrontendError, FrontendTypeError

check = Checks(FrontendTypeError, FrontendError)
