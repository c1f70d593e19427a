"""Which PopART this is."""

from __future__ import annotations

from ipujax.version import __version__

_NUMBER = (3, 4, 0)


def versionNumber() -> tuple[int, int, int]:
    """The version of the original whose names these are."""
    return _NUMBER


def versionString() -> str:
    """The version of the original, and ipujax's own, such as `3.4.0 (ipujax 0.1)`."""
    return f"{'.'.join(map(str, _NUMBER))} ({packageHash()})"


def packageHash() -> str:
    """What tells this build from others: ipujax's own version."""
    return f"ipujax {__version__}"
