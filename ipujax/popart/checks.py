"""The checks of PopART's arguments."""

from ipujax.checks.arguments import Checks
from ipujax.errors import PopARTError, PopARTTypeError

check = Checks(PopARTTypeError, PopARTError)
