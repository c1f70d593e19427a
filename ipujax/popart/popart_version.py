"""The version of PopART that this package re-creates."""

from __future__ import annotations

from ipujax.ground import __version__

_NUMBER = (3, 4, 0)


def versionNumber() -> tuple[int, int, int]:
    """Returns the version of PopART whose names this package has."""
    return _NUMBER


def versionString() -> str:
    """Returns the version of PopART, and ipujax's own, such as `3.4.0 (ipujax 0.1)`."""
    return f"{'.'.join(map(str, _NUMBER))} ({packageHash()})"


def packageHash() -> str:
    """Returns what identifies this build: ipujax's own version."""
    return f"ipujax {__version__}"
