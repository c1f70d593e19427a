"""The names of the original's module `poptorch._logging`."""

from __future__ import annotations

from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_log import LEVELS
from ipujax.poptorch.poptorch_log import logger as logger
from ipujax.poptorch.poptorch_log import setLogLevel as setLogLevel


def setPopartLogLevel(level: str) -> None:
    """Checks a log level and does nothing else: there is no PopART whose lines it could filter.

    Raises:
      Error: (a `ValueError`) a level that is none.
    """
    if level not in LEVELS:
        raise check.value_error(f"Level must be one of {', '.join(LEVELS)}, and is {level!r}")
