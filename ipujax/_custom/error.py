"""The errors of custom operations."""

from __future__ import annotations

from ipujax import _tracing as _tracing  # errors then name the user's line, not ours
from ipujax.errors import CustomOpError


def error(
    what: str, fix: str, where: str, kind: type[CustomOpError] = CustomOpError
) -> CustomOpError:
    """What is wrong, where, and how to mend it."""
    line = f"\n  where: {where}" if where else ""
    return kind(f"{what}{line}\n  fix:   {fix}")
