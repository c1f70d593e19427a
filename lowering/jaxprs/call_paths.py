"""Call paths: the user's frames behind an equation, from the outermost to the innermost."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from lowering.ground import is_in_installed_package, name_source_line
from lowering.jaxprs.jaxpr import JaxprEqn, user_frames

if TYPE_CHECKING:
    from lowering.jaxprs.jaxpr import Traceback

CallPath = tuple[str, ...]
"""Frames as `file:line (function)`, the outermost first."""


def call_path(eqn: JaxprEqn | None) -> CallPath:
    """Returns the user's frames behind an equation, outermost first; () if none are known.

    Frames of installed packages are left out, unless there are no others. Neighbours on one line,
    such as a comprehension and the function around it, are one.
    """
    return _user_frames_in_traceback(eqn.source_info.traceback) if eqn is not None else ()


def user_frames_key(eqn: JaxprEqn) -> tuple[tuple[str, int, int], ...]:
    """Returns the user's frames behind an equation; those of its backward twin are equal."""
    return _user_frames_key_of_traceback(eqn.source_info.traceback)


@functools.lru_cache(maxsize=1 << 14)
def _user_frames_key_of_traceback(traceback: Traceback | None) -> tuple[tuple[str, int, int], ...]:
    frames = user_frames(traceback)
    return tuple((f.file_name, f.start_line, f.start_column) for f in frames)


def names_of_calling_functions(eqn: JaxprEqn | None) -> tuple[str, ...]:
    """Returns the qualified names of all functions behind an equation, outermost first."""
    return _names_in_traceback(eqn.source_info.traceback) if eqn is not None else ()


@functools.lru_cache(maxsize=1 << 14)
def _names_in_traceback(traceback: Traceback | None) -> tuple[str, ...]:
    codes = traceback.raw_frames()[0] if traceback else ()
    return tuple(code.co_qualname for code in reversed(codes))


@functools.lru_cache(maxsize=1 << 14)
def _user_frames_in_traceback(traceback: Traceback | None) -> CallPath:
    frames = list(user_frames(traceback))
    uninstalled_frames = [
        frame for frame in frames if not is_in_installed_package(frame.file_name)
    ] or frames
    path: list[tuple[str, str]] = []
    for frame in reversed(uninstalled_frames):
        line = name_source_line(frame.file_name, frame.start_line)
        if not path or path[-1][0] != line:
            path.append((line, frame.function_name))
    return tuple(f"{line} ({function})" for line, function in path)
