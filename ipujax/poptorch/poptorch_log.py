"""The log of PopTorch: lines on standard error, from the level of `POPTORCH_LOG_LEVEL`."""

from __future__ import annotations

import copy
import logging
import os

from ipujax.poptorch.poptorch_checks import check
from ipujax.standin import log_to_stderr

LEVELS = {
    "TRACE": logging.DEBUG,
    "TRACE_ALL": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "DEBUG_IR": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "OFF": logging.CRITICAL + 1,
}
_NUMBERS = {0: "TRACE", 1: "DEBUG", 2: "INFO", 3: "WARN", 4: "ERR", 6: "OFF"}

logger = logging.getLogger("poptorch::python")


class _LowerCaseFormatter(logging.Formatter):
    """A formatter of the original's log lines: time, logger, level in small letters, message."""

    def format(self, record: logging.LogRecord) -> str:
        record = copy.copy(record)  # other handlers get it as it was
        record.levelname = record.levelname.lower()
        return super().format(record)


@check.guard
def setLogLevel(level: str | int) -> None:
    """Sets the least level of the lines that are logged.

    Args:
      level: "TRACE", "DEBUG", "INFO", "WARN", "ERR" or "OFF", or the original's number of it (0, 1,
        2, 3, 4, 6).

    Raises:
      Error: (a `ValueError`) `level` is something else.
    """
    check.require_instance(level, (str, int), "the level of setLogLevel", "a name or a number")
    name = _NUMBERS.get(level) if isinstance(level, int) else level
    if name not in LEVELS:
        known_names = sorted(_NUMBERS.values())
        kind = "Invalid log level integer" if isinstance(level, int) else "Unknown log level"
        raise check.value_error(
            f"{kind}: {level}. Valid values are {', '.join(known_names[:-1])} and {known_names[-1]}"
        )
    logger.setLevel(LEVELS[name])


log_to_stderr(logger, _LowerCaseFormatter, "%H:%M:%S")
setLogLevel(os.environ.get("POPTORCH_LOG_LEVEL", "WARN"))
