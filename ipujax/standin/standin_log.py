"""The form in which the originals' logs write lines on standard error."""

from __future__ import annotations

import logging
import sys


class CurrentStderrHandler(logging.Handler):
    """A log handler that writes to the current `sys.stderr`, which may be captured for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record."""
        print(self.format(record), file=sys.stderr)


def log_to_stderr(
    logger: logging.Logger, formatter: type[logging.Formatter], time_format: str
) -> None:
    """Lets a logger write its lines as the originals did: time, logger, level, message."""
    handler = CurrentStderrHandler()
    line = "[%(asctime)s.%(msecs)03d] [%(name)s] [%(levelname)s] %(message)s"
    handler.setFormatter(formatter(line, time_format))
    logger.addHandler(handler)
