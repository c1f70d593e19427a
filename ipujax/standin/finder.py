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

_WITHIN = {"tensorflow.python.ipu": "ipujax", "keras.ipu": "ipujax.keras"}
"""The modules that the original adds to packages of others, and what stands in for them."""

_ABSENT = ("popxl", "popart.ir", "popart._internal")
"""PopXL, its name in earlier versions, and the graph that it builds."""


class _Finder(importlib.abc.MetaPathFinder):
    """An import finder that returns `package.module` for `name.module`, as the same object."""

    def __init__(self, name: str, package_name: str) -> None:
        self.name, self._package = name, package_name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != self.name and not fullname.startswith(f"{self.name}."):
            return None
        own_name = self._package + fullname.removeprefix(self.name)
        if importlib.util.find_spec(own_name) is None:
            return None
        return importlib.util.spec_from_loader(fullname, _Loader(fullname, own_name))


class _Loader(importlib.abc.Loader):
    """The loader of one module, under the original's name."""

    def __init__(self, name: str, own_name: str) -> None:
        self._name, self._own_name = name, own_name
        self._own_spec: importlib.machinery.ModuleSpec | None = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        del spec
        module = importlib.import_module(self._own_name)
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just given it the other name's; reloading needs its own.
        module.__spec__ = self._own_spec

    def load_module(self, fullname: str | None = None) -> ModuleType:
        """Imports the module: programs call this without a name, as loaders of files allow."""
        return importlib.import_module(fullname or self._name)


class _KerasFinder(importlib.abc.MetaPathFinder):
    """An import finder that has Keras get its attribute `ipu` when it is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del target
        spec = (
            importlib.machinery.PathFinder.find_spec(fullname, path)
            if fullname == "keras"
            else None
        )
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_add_module(module: ModuleType) -> None:
            execute(module)
            importlib.import_module("keras.ipu")

        spec.loader.exec_module = execute_and_add_module
        return spec


class _AbsentFinder(importlib.abc.MetaPathFinder):
    """An import finder that says of a module of the SDK why it is not there."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        del path, target
        if fullname in _ABSENT:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: ipujax stands in for PopART and PopTorch, and has "
                "no PopXL, whose programs build PopART's graphs themselves; write the model with "
                "popart.Builder, PopTorch or JAX",
                name=fullname,
            )


def stand_in_for(name: str, package_name: str) -> ModuleType | None:
    """Lets `import name`, and imports of its submodules, find `package_name`.

    That holds for this process, and for those of Python that it starts. In both, imports of the
    other packages of the SDK find ours, too, unless others are installed; so do `keras.ipu`, and
    `tensorflow.python.ipu` where there is a TensorFlow that lacks it.

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
    if not any(isinstance(finder, _AbsentFinder) for finder in sys.meta_path):
        sys.meta_path.append(_AbsentFinder())  # the last, so that what is installed is found
    importlib.import_module(name)
    _stand_in_within_other_packages()
    for folder in sorted(_ROOMS.glob(_FOLDERS_OF_ORIGINALS)):
        _add_to_python_path(str(folder))
    return None


def _stand_in_within_other_packages() -> None:
    """Lets imports of modules inside TensorFlow and Keras find ours, unless they have their own."""
    known = [finder.name for finder in sys.meta_path if isinstance(finder, _Finder)]
    for name, package_name in _WITHIN.items():
        if name not in known:
            sys.meta_path.append(_Finder(name, package_name))
    if not any(isinstance(finder, _KerasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _KerasFinder())
    if "keras" in sys.modules:
        importlib.import_module("keras.ipu")


def _add_to_python_path(folder: str) -> None:
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in folders:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*folders, folder]))
    if folder not in sys.path:  # which `multiprocessing` passes to the processes that it spawns
        sys.path.append(folder)
