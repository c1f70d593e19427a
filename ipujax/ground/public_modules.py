"""Public modules that hold nothing but names, which the stub beside them lists."""

from __future__ import annotations

import ast
import functools
import importlib
import sys
from pathlib import Path
from typing import Any


def attach_names(module: str, file: str) -> tuple[Any, Any, Any]:
    """Returns the `__getattr__`, `__dir__` and `__all__` of a module that its stub fills.

    A name is imported when it is first used, from where the stub imports it. (The function of
    `lazy_loader` is for packages: it would put the names into the package of the module.)

    Args:
      module: the module's `__name__`.
      file: its `__file__`; the stub has the same name with the ending `.pyi`.
    """
    package = module.rpartition(".")[0]
    source_of_name = {
        alias.name: f".{node.module}"
        for node in ast.parse(Path(file).with_suffix(".pyi").read_text("utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    names = sorted(source_of_name)

    def import_name(name: str) -> object:
        if name not in source_of_name:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(source_of_name[name], package), name)
        setattr(sys.modules[module], name, value)  # the next use does not come here
        return value

    return import_name, functools.partial(list, names), names
