"""The checks of what the runtime of graphs is given."""

from ipujax.checks.arguments import Checks
from ipujax.errors import FrontendError, FrontendTypeError

check = Checks(FrontendTypeError, FrontendError)
