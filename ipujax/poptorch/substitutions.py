"""What programs have replaced while a module is traced, as PopTorch Geometric does."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import ClassVar, Protocol


class SubstitutionManager(Protocol):
    """Replaces functions of a library, and puts them back."""

    def replace(self) -> None:
        """Replaces the functions by those that the device can run."""

    def restore(self) -> None:
        """Puts the library's own functions back."""


class OverwriteContextManager:
    """The registry of substitutions; `poptorch._poplar_executor._OverwriteContextManager`."""

    registered: ClassVar[list[type[SubstitutionManager]]] = []

    @classmethod
    def registerSubsitutionManager(cls, type: type[SubstitutionManager]) -> None:
        """Has every later trace of a module replace, and restore, what a manager says.

        Args:
          type: a class without arguments, with methods `replace` and `restore`.
        """
        if type not in cls.registered:
            cls.registered.append(type)


@contextlib.contextmanager
def substituted_functions() -> Generator[None, None, None]:
    """Replaces what the registered managers say; restores it in the opposite order."""
    with contextlib.ExitStack() as stack:
        for manager_type in OverwriteContextManager.registered:
            manager = manager_type()
            manager.replace()
            stack.callback(manager.restore)
        yield
