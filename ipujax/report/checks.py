"""The checks of the arguments of reports, and the errors that they raise."""

from ipujax.checks.arguments import Checks
from ipujax.errors import ReportError, ReportTypeError

check = Checks(ReportTypeError, ReportError)
