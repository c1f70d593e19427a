"""The errors that a user's Python callbacks raise while a program calls them.

XLA keeps only the text of an exception. So each callback of a program is called through a
`_WatchedCallback`, which remembers what it raised.
"""

from __future__ import annotations

import dataclasses as dc
import re
import traceback
from collections.abc import Sequence
from typing import Any

from ipujax.ground import CallbackError
from lowering import contains_callbacks, jaxpr, replace_callbacks

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


class Watch:
    """The callbacks of one program, and the exceptions that they raised in the current run.

    Attributes:
      is_needed: whether it has any.
    """

    def __init__(self) -> None:
        self.is_needed = False
        self._raised: list[tuple[BaseException, str]] = []

    def record_errors_of_callbacks(self, closed: jaxpr.ClosedJaxpr) -> jaxpr.ClosedJaxpr:
        """Returns a jaxpr whose callbacks report their exceptions to this watch."""
        self.is_needed = contains_callbacks(closed.jaxpr)
        return replace_callbacks(
            closed, lambda function, line: _WatchedCallback(self, function, line)
        )

    def clear_errors(self) -> None:
        """Forgets the exceptions of earlier runs, before a run starts."""
        self._raised.clear()

    def record_error(self, error: BaseException, line: str) -> None:
        """Records the exception of a callback and the user's line that called it."""
        self._raised.append((error, line))

    def explain_xla_error(self, program: str, xla_error: Exception) -> BaseException | None:
        """Returns the error to raise for an XLA error; None if no callback is its reason.

        Args:
          program: its name.
          xla_error: XLA's error.
        """
        if self._raised:
            error, line = self._raised[0]
            self._raised.clear()
            if not isinstance(error, Exception):
                return error  # an interrupt
            location = _innermost_user_frame(traceback.extract_tb(error.__traceback__))
            called = f", called at {line}" if line else ""
            return _build_callback_error(
                program, f"{type(error).__name__}: {error}", location + called, error
            )
        if not self.is_needed or "CpuCallback" not in str(xla_error):
            return None
        frames = [
            traceback.FrameSummary(f, int(n), name) for f, n, name in _FRAME.findall(str(xla_error))
        ]
        return _build_callback_error(
            program,
            str(xla_error).rstrip().rpartition("\n")[2],
            _innermost_user_frame(frames),
            xla_error,
        )


@dc.dataclass(frozen=True)
class _WatchedCallback:
    """A callback that reports its exceptions to a watch."""

    watch: Watch
    function: Any
    line: str

    def __call__(self, *operands: Any) -> Any:
        try:
            return self.function(*operands)
        except BaseException as error:
            self.watch.record_error(error, self.line)
            raise


def _innermost_user_frame(frames: Sequence[traceback.FrameSummary]) -> str:
    """Returns the user's innermost frame as text, or the innermost of all frames."""
    users = [frame for frame in frames if jaxpr.is_user_file(frame.filename)]
    frame = (users or list(frames))[-1:]
    return "".join(
        f"{user_frame.filename}:{user_frame.lineno} ({user_frame.name})" for user_frame in frame
    )


def _build_callback_error(
    program: str, description: str, location: str, cause: BaseException
) -> CallbackError:
    error = CallbackError(
        f"`{program}`: Python code that it calls on the host raised {description}",
        where=location,
        fix="mend that code; the program can be called again",
    )
    error.__cause__ = cause
    return error
