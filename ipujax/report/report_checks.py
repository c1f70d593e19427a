"""The checks of the arguments of reports, and the errors that they raise."""

from ipujax.ground import Checks, ReportError, ReportTypeError

check = Checks(ReportTypeError, ReportError)
