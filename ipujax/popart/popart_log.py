"""The log of PopART: lines on standard error, from the level of a script or `POPART_LOG_LEVEL`."""

from __future__ import annotations

import logging
import os

from ipujax.popart.popart_checks import check
from ipujax.standin import log_to_stderr

TRACE = 5  # below DEBUG, as in the original
LEVELS = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 1,
}

_ALL = "all"
_ROOT = "popart"


@check.guard
class Logger:
    """A log of a part of PopART; Python's own logger of that name gets its lines.

    Args:
      name: the name of the part, such as `builder`; `all` for all parts.
    """

    def __init__(self, name: str):
        self._log = logging.getLogger(_ROOT if name == _ALL else f"{_ROOT}.{name}")

    def setLevel(self, level: str) -> None:
        """Sets the least level of the lines that are logged.

        Raises:
          PopARTError: (a `ValueError`) it is none of TRACE, DEBUG, INFO, WARN, ERR, CRITICAL, OFF.
        """
        self._log.setLevel(LEVELS[check.require_one_of(level, LEVELS, "the level of setLevel")])

    def trace(self, message: str) -> None:
        """Logs a message at level TRACE, for those who debug PopART itself."""
        self._log.log(TRACE, "%s", message)

    def debug(self, message: str) -> None:
        """Logs a message at level DEBUG."""
        self._log.debug("%s", message)

    def info(self, message: str) -> None:
        """Logs a message at level INFO."""
        self._log.info("%s", message)

    def warn(self, message: str) -> None:
        """Logs a message at level WARN."""
        self._log.warning("%s", message)

    def error(self, message: str) -> None:
        """Logs a message at level ERR."""
        self._log.error("%s", message)

    def critical(self, message: str) -> None:
        """Logs a message at level CRITICAL."""
        self._log.critical("%s", message)


@check.guard
def getLogger(name: str = _ALL) -> Logger:
    """Returns the log of a part of PopART."""
    return Logger(check.require_text(name, "the name of a log"))


log_to_stderr(logging.getLogger(_ROOT), logging.Formatter, "%Y-%m-%d %H:%M:%S")
getLogger().setLevel(os.environ.get("POPART_LOG_LEVEL", "WARN"))
