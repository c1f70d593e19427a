"""Outlined functions: code that a program holds once and calls often."""

from __future__ import annotations

from ipujax.operators import functional as _functional

__all__ = [
    "outlined_function",
]


def __dir__() -> list[str]:
    return __all__


outlined_function = _functional.outlined_function
