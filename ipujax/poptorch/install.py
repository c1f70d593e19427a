"""`install()` lets `import poptorch` find this package, for scripts that stay as they are."""

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

from ipujax.errors import PopTorchError
from ipujax.poptorch.older_torch import accept_older_calls

_NAME, _HERE = "poptorch", "ipujax.poptorch"
_FOR_CHILDREN = str(Path(__file__).with_name("for_children"))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives `poptorch.name` the module `ipujax.poptorch.name`, the very same one."""

    def __init__(self) -> None:
        self._specs: dict[str, importlib.machinery.ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != _NAME and not fullname.startswith(f"{_NAME}."):
            return None
        if importlib.util.find_spec(_own(fullname)) is None:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: ipujax.poptorch does not have it", name=fullname
            )
        return importlib.util.spec_from_loader(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(_own(spec.name))
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just given it the other name's; reloading needs its own.
        name = module.__spec__.name if module.__spec__ else ""
        module.__spec__ = self._specs.pop(name, module.__spec__)


def _own(name: str) -> str:
    return _HERE + name.removeprefix(_NAME)


def install() -> None:
    """Has `import poptorch`, and modules in it, find `ipujax.poptorch`.

    That holds for this process, and for those of Python that it starts: `PYTHONPATH` and `sys.path`
    get a folder with a module of this name.

    Nobody else calls this: put it above the first `import poptorch`, or run a script by
    `python -m ipujax.poptorch script.py`. PyTorch then takes what it took in PopTorch's time: see
    `older_torch`.

    Raises:
      PopTorchError: (a `ValueError`) another `poptorch` is imported already.
    """
    there = sys.modules.get(_NAME)
    if there is not None and there is not sys.modules.get(_HERE):
        raise PopTorchError(
            f"poptorch is imported already, from {getattr(there, '__file__', 'elsewhere')}",
            fix="call ipujax.poptorch.install() before anything imports poptorch",
        )
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    importlib.import_module(_NAME)
    accept_older_calls()
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _FOR_CHILDREN not in folders:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*folders, _FOR_CHILDREN]))
    if _FOR_CHILDREN not in sys.path:  # which `multiprocessing` gives to those that it spawns
        sys.path.append(_FOR_CHILDREN)
