"""The checker of PopART's arguments, and the conversion of front ends' errors to PopART's."""

import contextlib
from collections.abc import Generator

from ipujax.ground import Checks, FrontendError, FrontendTypeError, PopARTError, PopARTTypeError

check = Checks(PopARTTypeError, PopARTError)


@contextlib.contextmanager
def convert_frontend_errors() -> Generator[None]:
    """Raises errors of a front end in the block as `PopARTError`s."""
    try:
        yield
    except FrontendTypeError as error:
        raise PopARTTypeError(error.what, where=error.where, fix=error.fix) from error
    except FrontendError as error:
        raise PopARTError(error.what, where=error.where, fix=error.fix) from error
