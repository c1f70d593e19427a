"""Imports of all modules of a package, so that each of them can register its contents."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def import_modules_beside(name: str) -> tuple[ModuleType, ...]:
    """Imports the other modules of a module's package and returns them in the order of their names.

    Args:
      name: the module's `__name__`.
    """
    package = importlib.import_module(name.rpartition(".")[0])
    siblings = (
        info.name for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    )
    return tuple(importlib.import_module(sibling) for sibling in siblings if sibling != name)
