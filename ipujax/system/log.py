"""The logger of ipujax: absl's line format on standard error, ruled by `POPLAR_LOG_LEVEL`.

Nothing has to be set up to see the lines. A program that configures logging itself, through the
standard library or absl, gets each record once, through its own handlers.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import cast

from absl import logging as absl_logging

from ipujax.errors import FlagError

TRACE = 5  # below DEBUG: all that there is to say about single tiles
LEVELS = {
    "OFF": logging.CRITICAL + 1,
    "ERR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}

_logger = logging.getLogger("ipujax")
_applied: str | None = None  # the value of the variable that the logger's level follows


class _StderrUnlessShownElsewhere(logging.Handler):
    """Writes to today's `sys.stderr`, unless another handler gets the record and shows it."""

    def emit(self, record: logging.LogRecord) -> None:
        others = [handler for handler in _logger.handlers if handler is not self]
        if _logger.propagate:
            others += logging.getLogger().handlers
        if all(_is_silent(handler) for handler in others):
            print(self.format(record), file=sys.stderr)


def _is_silent(handler: logging.Handler) -> bool:
    """Whether a handler only collects records, as test runners' handlers do."""
    if isinstance(handler, logging.FileHandler):
        return handler.baseFilename == os.path.abspath(os.devnull)
    if isinstance(handler, logging.StreamHandler):
        stream = cast(object, handler.stream)  # pyright: ignore[reportUnknownMemberType]
        return isinstance(stream, io.StringIO)
    return isinstance(handler, logging.NullHandler)


def get_logger() -> logging.Logger:
    """The logger named `ipujax`, at the level that `POPLAR_LOG_LEVEL` asks for now.

    Without that variable the level is `INFO`, or what a program gave to the logger itself.

    Raises:
      FlagError: if the variable holds something else than OFF, ERR, WARN, INFO, DEBUG or TRACE.
    """
    global _applied
    asked = os.environ.get("POPLAR_LOG_LEVEL", "")
    if asked == _applied:
        return _logger
    if asked:
        _logger.setLevel(_level(asked))
    elif _applied:
        _logger.setLevel(logging.INFO)
    _applied = asked
    return _logger


def _level(name: str) -> int:
    try:
        return LEVELS[name.strip().upper()]
    except KeyError:
        raise FlagError(
            f"POPLAR_LOG_LEVEL={name} is not a log level; use one of {', '.join(LEVELS)}"
        ) from None


def _install() -> None:
    logging.addLevelName(TRACE, "TRACE")
    handler = _StderrUnlessShownElsewhere()
    handler.setFormatter(absl_logging.PythonFormatter())
    _logger.addHandler(handler)
    if _logger.level == logging.NOTSET:
        _logger.setLevel(logging.INFO)


_install()
