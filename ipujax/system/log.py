"""The logger of ipujax: absl's line format, `POPLAR_LOG_LEVEL` and `POPLAR_LOG_DEST`.

Lines go to standard error unless `POPLAR_LOG_DEST` names `stdout` or a file, to whose end they go.
`POPLIBS_LOG_LEVEL` rules plans of operations alone: they are shown from INFO on, and it is OFF by
default. Nothing has to be set up to see the other lines. A program that configures logging itself,
through the standard library or absl, gets each record once, through its own handlers.

absl adds a handler with the standard library's format to the root logger when a program that has
none logs through it, as orbax does. `share_absl_format` gives that handler absl's own format, so
that all lines of a process look alike.
"""

from __future__ import annotations

import errno
import functools
import io
import logging
import os
import sys
from typing import cast

from absl import logging as absl_logging

from ipujax.ground import FlagError, files

TRACE = 5  # below DEBUG: messages about single tiles
LEVELS = {
    "OFF": logging.CRITICAL + 1,
    "ERR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # the disk took earlier lines

_logger = logging.getLogger("ipujax")
_applied: str | None = None  # the value of the variable that the logger's level follows
_plans = logging.getLogger("ipujax.poplibs")


class _PoplarLogHandler(logging.Handler):
    """A handler that writes to the destination in `POPLAR_LOG_DEST`.

    Without it that is today's `sys.stderr`, unless another handler gets the record and shows it.
    """

    def emit(self, record: logging.LogRecord) -> None:
        destination = os.environ.get("POPLAR_LOG_DEST", "")
        streams = {"stdout": sys.stdout, "stderr": sys.stderr}
        if destination in streams:
            print(self.format(record), file=streams[destination])
        elif destination:
            _append_to_log(destination, self.format(record) + "\n")
        else:
            _format_default_handlers()
            self._print_unless_handled(record)

    def _print_unless_handled(self, record: logging.LogRecord) -> None:
        other_handlers = [handler for handler in _logger.handlers if handler is not self]
        if _logger.propagate:
            other_handlers += logging.getLogger().handlers
        if all(_is_silent_handler(handler) for handler in other_handlers):
            print(self.format(record), file=sys.stderr)


def _append_to_log(path: str, text: str) -> None:
    """Appends to a log file; on a full disk prints to standard error instead of raising."""
    try:
        files.append_text(path, text)
    except OSError as error:
        if error.errno in _FULL:
            print(text, end="", file=sys.stderr)
            return
        raise FlagError(
            f"POPLAR_LOG_DEST={path} cannot be written to: {error.strerror}; use stdout, stderr, "
            "or a file in a directory that exists"
        ) from None


def _is_silent_handler(handler: logging.Handler) -> bool:
    """Returns whether a handler only collects records, as test runners' handlers do."""
    if isinstance(handler, logging.FileHandler):
        return handler.baseFilename == os.path.abspath(os.devnull)
    if isinstance(handler, logging.StreamHandler):
        stream = cast(object, handler.stream)  # pyright: ignore[reportUnknownMemberType]
        return isinstance(stream, io.StringIO)
    return isinstance(handler, logging.NullHandler)


def share_absl_format() -> None:
    """Has lines that are logged through absl from here on look as those of ipujax.

    absl would add this handler by itself with the next line.
    """
    if not logging.root.handlers:
        logging.basicConfig()
    _format_default_handlers()


def _format_default_handlers() -> None:
    """Gives absl's format to the root's handlers, if nobody has chosen a format or a level."""
    if logging.root.level != logging.WARNING:
        return
    for handler in logging.root.handlers:
        line_format = getattr(handler.formatter, "_fmt", None)
        if type(handler) is logging.StreamHandler and line_format == logging.BASIC_FORMAT:
            handler.setFormatter(absl_logging.PythonFormatter())


def get_logger() -> logging.Logger:
    """Returns the logger named `ipujax`, at the level that `POPLAR_LOG_LEVEL` asks for now.

    Without that variable the level is `INFO`, or what a program gave to the logger itself.

    Raises:
      FlagError: if the variable holds something else than OFF, ERR, WARN, INFO, DEBUG or TRACE.
    """
    global _applied
    level_name = os.environ.get("POPLAR_LOG_LEVEL", "")
    if level_name == _applied:
        return _logger
    if level_name:
        _logger.setLevel(_parse_log_level(level_name, "POPLAR_LOG_LEVEL"))
    elif _applied:
        _logger.setLevel(logging.INFO)
    _applied = level_name
    return _logger


@functools.cache
def log_once(text: str) -> None:
    """Logs a text at INFO, the first time that it is given."""
    get_logger().info("%s", text)


def get_plan_logger() -> logging.Logger:
    """Returns the logger of plans, at the level in `POPLIBS_LOG_LEVEL` now, by default OFF.

    Raises:
      FlagError: as for `get_logger`.
    """
    get_logger()
    level_name = os.environ.get("POPLIBS_LOG_LEVEL") or "OFF"
    _plans.setLevel(_parse_log_level(level_name, "POPLIBS_LOG_LEVEL"))
    return _plans


def _parse_log_level(name: str, variable: str) -> int:
    try:
        return LEVELS[name.strip().upper()]
    except KeyError:
        raise FlagError(
            f"{variable}={name} is not a log level; use one of {', '.join(LEVELS)}"
        ) from None


def _install_log_handler() -> None:
    logging.addLevelName(TRACE, "TRACE")
    handler = _PoplarLogHandler()
    handler.setFormatter(absl_logging.PythonFormatter())
    _logger.addHandler(handler)
    if _logger.level == logging.NOTSET:
        _logger.setLevel(logging.INFO)


_install_log_handler()
