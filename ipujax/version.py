"""The version of ipujax."""

from __future__ import annotations

from ipujax.ground import version as _version

__all__ = [
    "__version__",
]


def __dir__() -> list[str]:
    return __all__


__version__ = _version.__version__
