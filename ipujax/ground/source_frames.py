"""Calls on behalf of source lines: JAX then records these lines behind what the calls trace.

A graph that a library has traced knows the user's lines behind its nodes, but when the nodes are
computed, none of that code runs.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import types
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from lowering import jaxpr

Result = TypeVar("Result")


class SourceFrame(NamedTuple):
    """A line of a file, and the function that it is in."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def call_on_behalf(
    frames: Sequence[SourceFrame], function: Callable[[], Result], *, shows_in_errors: bool = True
) -> Result:
    """Calls a function so that tracebacks have given frames above it, the outermost first.

    Args:
      frames: the frames.
      function: what to call.
      shows_in_errors: whether the tracebacks of errors have them, too.
    """
    for frame in reversed(frames):
        function = functools.partial(_make_caller(frame), function)
    try:
        return function()
    except Exception as error:
        if not shows_in_errors:
            _leave_out_frames(error.__traceback__, {_make_caller(f).__code__ for f in frames})
        raise


def _leave_out_frames(trace: types.TracebackType | None, codes: set[types.CodeType]) -> None:
    """Leaves out the frames that run one of the codes, but not the first one."""
    while trace is not None:
        following = trace.tb_next
        while following is not None and following.tb_frame.f_code in codes:
            following = following.tb_next
        trace.tb_next = following
        trace = following


def with_calling_line(function: Callable[..., Result]) -> Callable[..., Result]:
    """Returns a function of ours that runs on behalf of the user's line that is running now.

    JAX records no frames outside the function that it traces. In the user's function there are some
    of theirs, and it is returned as it is; in ours, the line that led to it is better than none.
    """
    frames = _user_frame_if_ours(function)

    def call(*args: object, **kwargs: object) -> Result:
        bound_function = functools.partial(function, *args, **kwargs)
        return call_on_behalf(frames, bound_function, shows_in_errors=False)

    return call if frames else function


def _user_frame_if_ours(function: Callable[..., object]) -> tuple[SourceFrame, ...]:
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or jaxpr.is_user_code(code):
        return ()
    frame = inspect.currentframe()
    while frame is not None and not jaxpr.is_user_code(frame.f_code):
        frame = frame.f_back
    if frame is None:
        return ()
    return (SourceFrame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname),)


@functools.lru_cache(maxsize=1 << 14)
def _make_caller(frame: SourceFrame) -> types.FunctionType:
    """Returns a function that calls its argument, and whose code claims to be at a line."""
    code = _CALLER.__code__.replace(
        co_filename=frame.file,
        co_firstlineno=frame.line,
        co_name=frame.function,
        co_qualname=frame.function,
    )
    # What C code imports, it imports by the builtins of the Python code that called it.
    return types.FunctionType(code, {"__builtins__": builtins})


# On one line: the line of the call is then the first one of the code.
_CALLER: Callable[[Callable[[], object]], object] = lambda function: function()  # noqa: E731
