"""The names of exceptions that handlers of scripts have.

`popart_exception` is what ipujax raises in the original's place, `poplar_exception` where that left
it to Poplar, and `poplar_runtime_error` where a program ended itself. Nothing raises the others:
kinds of theirs that need an IPU, or are PopART's own mistakes.
"""

from __future__ import annotations

from ipujax.errors import CallbackError, PopARTError, PoplarError

popart_exception = PopARTError
poplar_exception = PoplarError
poplar_runtime_error = CallbackError


class popart_internal_exception(popart_exception):
    """A mistake of PopART's own."""


class popart_runtime_error(popart_exception):
    """PopART found something wrong while a program ran."""


class poplibs_exception(Exception):
    """A library of Poplar's operations refused something."""


class poplar_application_runtime_error(poplar_runtime_error):
    """A program did something wrong."""


class poplar_system_runtime_error(poplar_runtime_error):
    """The IPUs, or what connects them, had a fault."""


class poplar_recoverable_runtime_error(poplar_system_runtime_error):
    """A fault after which one may go on, once something is reset."""


class poplar_unrecoverable_runtime_error(poplar_system_runtime_error):
    """A fault after which one cannot go on."""


class poplar_unknown_runtime_error(poplar_system_runtime_error):
    """A fault of which nothing is known."""


class OutOfMemoryException(popart_exception):
    """A model did not fit into the tiles' memory. `ipu.report` tells of that without an error."""
