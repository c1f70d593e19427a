"""The original's `compile`: compiles a computation and runs it on its inputs at once."""

from __future__ import annotations

from ipujax.driver import ipu_compiler as _ipu_compiler

__all__ = [
    "compile",
]


def __dir__() -> list[str]:
    return __all__


compile = _ipu_compiler.compile
