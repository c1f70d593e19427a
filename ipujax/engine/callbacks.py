"""What the user's Python raised while a program called it.

XLA keeps nothing of an exception but its text. So each callback of a program is called through a
`_Watched`, which remembers what it raised.
"""

from __future__ import annotations

import dataclasses as dc
import re
import traceback
from collections.abc import Sequence
from typing import Any

from ipujax.errors import CallbackError
from lowering import calls_back, exchange_callbacks, jaxpr

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


class Watch:
    """The callbacks of one program.

    Attributes:
      is_needed: whether it has any.
    """

    def __init__(self) -> None:
        self.is_needed = False
        self._raised: list[tuple[BaseException, str]] = []

    def over(self, closed: jaxpr.ClosedJaxpr) -> jaxpr.ClosedJaxpr:
        """A jaxpr whose callbacks are watched."""
        self.is_needed = calls_back(closed.jaxpr)
        return exchange_callbacks(closed, lambda function, line: _Watched(self, function, line))

    def begin(self) -> None:
        """The program starts."""
        self._raised.clear()

    def note(self, error: BaseException, line: str) -> None:
        """A callback raised, called at a line of the user's."""
        self._raised.append((error, line))

    def failure(self, program: str, wrong: Exception) -> BaseException | None:
        """What to raise for what XLA raised, with its cause; None if no callback is the reason.

        Args:
          program: its name.
          wrong: XLA's error.
        """
        if self._raised:
            error, line = self._raised[0]
            self._raised.clear()
            if not isinstance(error, Exception):
                return error  # an interrupt
            where = _innermost(traceback.extract_tb(error.__traceback__))
            called = f", called at {line}" if line else ""
            return _ours(program, f"{type(error).__name__}: {error}", where + called, error)
        if not self.is_needed or "CpuCallback" not in str(wrong):
            return None
        frames = [
            traceback.FrameSummary(f, int(n), name) for f, n, name in _FRAME.findall(str(wrong))
        ]
        return _ours(program, str(wrong).rstrip().rpartition("\n")[2], _innermost(frames), wrong)


@dc.dataclass(frozen=True)
class _Watched:
    """A callback that tells its watch what it raises."""

    watch: Watch
    function: Any
    line: str

    def __call__(self, *operands: Any) -> Any:
        try:
            return self.function(*operands)
        except BaseException as error:
            self.watch.note(error, self.line)
            raise


def _innermost(frames: Sequence[traceback.FrameSummary]) -> str:
    """The user's innermost frame; the innermost of all, if none is his."""
    users = [frame for frame in frames if jaxpr.is_user_file(frame.filename)]
    frame = (users or list(frames))[-1:]
    return "".join(f"{each.filename}:{each.lineno} ({each.name})" for each in frame)


def _ours(program: str, what: str, where: str, cause: BaseException) -> CallbackError:
    error = CallbackError(
        f"`{program}`: Python code that it calls on the host raised {what}",
        where=where,
        fix="mend that code; the program can be called again",
    )
    error.__cause__ = cause
    return error
