"""The checks of what the runtime of graphs is given."""

from ipujax.ground import Checks, FrontendError, FrontendTypeError

check = Checks(FrontendTypeError, FrontendError)
