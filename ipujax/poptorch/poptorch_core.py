"""The names of the original's C++ library `poptorch_core` that its programs call."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from ipujax.doors.torch import current_trace
from ipujax.ground import PopTorchError as Error
from ipujax.ground import RecoverableError as RecoverableError
from ipujax.ground import UnrecoverableError as UnrecoverableError
from ipujax.poptorch.enums import OutputMode
from ipujax.poptorch.options import Options
from ipujax.poptorch.options.switches import SWITCHES, check_switches, log_options

__all__ = ["Error", "RecoverableError", "UnrecoverableError", "isCompilingWithDispatcher"]

# The options that have no value until they are set.
_OPTIONAL = frozenset(
    {
        "ipu_id", "ipu_version", "location_accumulator", "location_activation",
        "location_optimizer", "location_weight", "model_name", "random_seed", "use_model",
    }
)  # fmt: skip


def _validateOptions(options: Mapping[str, object]) -> None:  # pyright: ignore[reportUnusedFunction]
    """Checks switches of PopART among options, and logs all options for debugging.

    Args:
      options: from `Options.toDict()`.

    Raises:
      Error: a switch is unknown, or has a value that it cannot have.
    """
    public = _OPTIONAL | Options().outputMode(OutputMode.All).toDict().keys() - SWITCHES.keys()
    check_switches({name: value for name, value in options.items() if name not in public})
    log_options(options)


def isCompilingWithDispatcher() -> bool:
    """Returns whether a module is being traced."""
    return current_trace() is not None


class TestErrorType(enum.Enum):
    """The kinds of errors that `_throwTestError` raises."""

    Poptorch = "poptorch_cpp_error"
    Popart = "popart_exception"
    PopartInternal = "popart_internal_exception"
    Poplibs = "poplibs_exception"
    PoplarUnrecoverable = UnrecoverableError.type
    PoplarUnknown = "poplar_exception"
    PoplarRecoverableFullReset = RecoverableError.type
    PoplarLinkError = "poplar_link_error"


def _throwTestError(kind: TestErrorType) -> None:  # pyright: ignore[reportUnusedFunction]
    """Raises an error as a device or its compiler would, for programs that test their handlers.

    Raises:
      Error: always.
    """
    location = "throwTestError::bottomLevel, throwTestError::topLevel"
    message = f"an error of the kind {kind.value}, raised for a test"
    if kind is TestErrorType.PoplarRecoverableFullReset:
        raise RecoverableError(message, where=location)
    if kind is TestErrorType.PoplarUnrecoverable:
        raise UnrecoverableError(message, where=location)
    if kind is TestErrorType.PoplarLinkError:
        message += ": -lfoo not found"
    error = Error(message, where=location)
    error.type = kind.value
    raise error
