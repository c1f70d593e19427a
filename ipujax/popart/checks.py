"""The checks of PopART's arguments, and what front ends refuse as errors of PopART."""

import contextlib
from collections.abc import Generator

from ipujax.checks.arguments import Checks
from ipujax.errors import FrontendError, FrontendTypeError, PopARTError, PopARTTypeError

check = Checks(PopARTTypeError, PopARTError)


@contextlib.contextmanager
def as_popart_errors() -> Generator[None]:
    """Has what a front end refuses be a `PopARTError`."""
    try:
        yield
    except FrontendTypeError as error:
        raise PopARTTypeError(error.what, where=error.where, fix=error.fix) from error
    except FrontendError as error:
        raise PopARTError(error.what, where=error.where, fix=error.fix) from error
