"""PopART's lines on standard error from the level that a script or `POPART_LOG_LEVEL` says."""

from __future__ import annotations

import logging
import os
import sys

from ipujax.popart.checks import check

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
    """The log of a part of PopART; Python's own logger of that name gets its lines.

    Args:
      name: of the part, such as `builder`; `all` for all of them.
    """

    def __init__(self, name: str):
        self._log = logging.getLogger(_ROOT if name == _ALL else f"{_ROOT}.{name}")

    def setLevel(self, level: str) -> None:
        """Sets the least level of the lines that are logged.

        Raises:
          PopARTError: (a `ValueError`) it is none of TRACE, DEBUG, INFO, WARN, ERR, CRITICAL, OFF.
        """
        self._log.setLevel(LEVELS[check.one_of(level, LEVELS, "the level of setLevel")])

    def trace(self, message: str) -> None:
        """Logs what only those need to know who look for a mistake of PopART's."""
        self._log.log(TRACE, "%s", message)

    def debug(self, message: str) -> None:
        """Logs what is done step by step."""
        self._log.debug("%s", message)

    def info(self, message: str) -> None:
        """Logs what is done."""
        self._log.info("%s", message)

    def warn(self, message: str) -> None:
        """Logs what may be a mistake."""
        self._log.warning("%s", message)

    def error(self, message: str) -> None:
        """Logs a mistake."""
        self._log.error("%s", message)

    def critical(self, message: str) -> None:
        """Logs a mistake after which nothing goes on."""
        self._log.critical("%s", message)


@check.guard
def getLogger(name: str = _ALL) -> Logger:
    """The log of a part of PopART."""
    return Logger(check.text(name, "the name of a log"))


class _StderrOfToday(logging.Handler):
    """Writes to what `sys.stderr` is when a line comes: it may be captured only for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


def _set_up() -> None:
    handler = _StderrOfToday()
    form = "[%(asctime)s.%(msecs)03d] [%(name)s] [%(levelname)s] %(message)s"
    handler.setFormatter(logging.Formatter(form, "%Y-%m-%d %H:%M:%S"))
    logging.getLogger(_ROOT).addHandler(handler)
    getLogger().setLevel(os.environ.get("POPART_LOG_LEVEL", "WARN"))


_set_up()
