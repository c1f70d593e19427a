"""Operators against the same thing written with flax, optax, NumPy or plain JAX."""

from __future__ import annotations

import importlib
import pkgutil

from benchmarks.measure import Row


def rows() -> list[Row]:
    """Those of every module of this folder, each of which is one subject."""
    result: list[Row] = []
    for module in sorted(found.name for found in pkgutil.iter_modules(__path__)):
        result += importlib.import_module(f"{__name__}.{module}").rows()
    return result
