"""An import finder that gives packages of ipujax the names of the originals."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

_ROOMS = Path(__file__).parents[1]
_FOLDERS_OF_ORIGINALS = "*/for_children/[a-z]*"
"""Each has a module of the original's name, which has ours stand in for it."""


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import finder that returns `package.module` for `name.module`, as the same object."""

    def __init__(self, name: str, package_name: str) -> None:
        self.name, self._package = name, package_name
        self._specs: dict[str, importlib.machinery.ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != self.name and not fullname.startswith(f"{self.name}."):
            return None
        if importlib.util.find_spec(self._own_module_name(fullname)) is None:
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._own_module_name(spec.name))
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just given it the other name's; reloading needs its own.
        name = module.__spec__.name if module.__spec__ else ""
        module.__spec__ = self._specs.pop(name, module.__spec__)

    def _own_module_name(self, name: str) -> str:
        return self._package + name.removeprefix(self.name)


def stand_in_for(name: str, package_name: str) -> ModuleType | None:
    """Lets `import name`, and imports of its submodules, find `package_name`.

    That holds for this process, and for those of Python that it starts. In both, imports of the
    other packages of the SDK find ours, too, unless others are installed.

    Args:
      name: the original package.
      package_name: the package of ipujax.

    Returns:
      A package of that name that is imported already, and is not ours, so that nothing was done;
      else None.
    """
    there = sys.modules.get(name)
    if there is not None and there is not sys.modules.get(package_name):
        return there
    if not any(isinstance(finder, _Finder) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name, package_name))
    importlib.import_module(name)
    for folder in sorted(_ROOMS.glob(_FOLDERS_OF_ORIGINALS)):
        _add_to_python_path(str(folder))
    return None


def _add_to_python_path(folder: str) -> None:
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in folders:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*folders, folder]))
    if folder not in sys.path:  # which `multiprocessing` passes to the processes that it spawns
        sys.path.append(folder)
