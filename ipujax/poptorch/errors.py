"""All that can be wrong with a model is a `poptorch.Error`."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from ipujax.errors import IPUError, PopTorchError


@contextlib.contextmanager
def as_poptorch() -> Generator[None]:
    """In the block, errors of what PopTorch stands on are raised as its own.

    Raises:
      PopTorchError: (a `ValueError`) says the same; its `__cause__` is the error.
    """
    try:
        yield
    except PopTorchError:
        raise
    except IPUError as error:
        what = getattr(error, "what", str(error))
        raise PopTorchError(what, where=error.where, fix=error.fix) from error
