"""The exceptions of PopART, Poplar and PopLibs that scripts catch.

ipujax raises `popart_exception` where PopART raised an error, `poplar_exception` where Poplar did,
and `poplar_runtime_error` where a program ended itself. Nothing raises the others: they stand for
faults of an IPU, or bugs of PopART.
"""

from __future__ import annotations

from ipujax.ground import CallbackError, PopARTError, PoplarError

popart_exception = PopARTError
poplar_exception = PoplarError
poplar_runtime_error = CallbackError


class popart_internal_exception(popart_exception):
    """A bug of PopART itself; never raised here."""


class popart_runtime_error(popart_exception):
    """An error of PopART while a program runs; never raised here."""


class poplibs_exception(Exception):
    """An error of PopLibs; never raised here."""


class poplar_application_runtime_error(poplar_runtime_error):
    """An error of a program on an IPU; never raised here."""


class poplar_system_runtime_error(poplar_runtime_error):
    """A fault of the IPUs or their links; never raised here."""


class poplar_recoverable_runtime_error(poplar_system_runtime_error):
    """A fault of the IPUs after which a reset allows going on; never raised here."""


class poplar_unrecoverable_runtime_error(poplar_system_runtime_error):
    """A fault of the IPUs after which nothing can go on; never raised here."""


class poplar_unknown_runtime_error(poplar_system_runtime_error):
    """An unknown fault of the IPUs; never raised here."""


class OutOfMemoryException(popart_exception):
    """A model that does not fit into the tiles' memory; never raised here: see `ipu.report`."""
