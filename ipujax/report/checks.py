"""The checks of what reports are asked for."""

from ipujax.checks.arguments import Checks
from ipujax.errors import ReportError, ReportTypeError

check = Checks(ReportTypeError, ReportError)
