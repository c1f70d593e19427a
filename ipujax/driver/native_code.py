"""Compiled code of users, in libraries by the hash of what they are made of, that kernels call.

A kernel calls it by a target's name, `ipujax_<hash>.codelets_<number>`. A saved executable has that
name alone, and no code, as the file may come from anybody: only libraries that this user's own
processes have compiled are loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import jax

from ipujax.driver import executable_cache
from ipujax.ground import ExecutableError, ForeignFolderError, open_own_folder

SUFFIX = ".codelets.so"
"""Of the names of libraries, behind the hash."""

_TARGET = re.compile(r"ipujax_([0-9a-f]{64})\.codelets_(\d{1,9})")
_LIBRARIES: dict[Path, ctypes.CDLL] = {}
_REGISTERED: set[str] = set()


@contextlib.contextmanager
def open_code_folder() -> Generator[Path]:
    """Yields the folder of libraries: that of the executable cache, or a temporary one.

    Raises:
      ForeignFolderError: the temporary one is not this user's alone.
      OSError: it cannot be made.
    """
    chosen = executable_cache.cache_folder()
    temporary = Path(tempfile.gettempdir()) / f"ipujax-codelets-{os.geteuid()}"
    with contextlib.nullcontext() if chosen else open_own_folder(temporary, create=True):
        yield chosen or temporary


def load_library(path: Path) -> ctypes.CDLL:
    """Loads a library, once."""
    if path not in _LIBRARIES:
        _LIBRARIES[path] = ctypes.CDLL(str(path))
    return _LIBRARIES[path]


def register_target(path: Path, number: int) -> str:
    """Has XLA know a handler of a library, and returns the name of its target."""
    target = f"ipujax_{path.name.removesuffix('.so')}_{number}"
    if target not in _REGISTERED:
        handler: Any = load_library(path)[f"ipujax_run_{number}"]
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform="cpu")
        _REGISTERED.add(target)
    return target


def is_target(name: str) -> bool:
    """Returns whether kernels call a user's compiled code by a name."""
    return _TARGET.fullmatch(name) is not None


def require_target(name: str) -> None:
    """Has XLA know a target that a saved executable calls.

    Raises:
      ExecutableError: this user has not compiled that code on this machine.
    """
    match = _TARGET.fullmatch(name)
    if match is None or name in _REGISTERED:
        return
    # A library without a handler of that number is an AttributeError of ctypes.
    absent = (ForeignFolderError, OSError, AttributeError)
    with contextlib.suppress(*absent), open_code_folder() as folder:
        path = folder / f"{match[1]}{SUFFIX}"
        if path.exists():
            register_target(path, int(match[2]))
            return
    raise ExecutableError(
        "the executable calls codelets in C++ that are not compiled here, and files hold no code",
        fix="before it is loaded, add the same text, with the same flags and compiler, to a graph: "
        "graph.addCodelets(...)",
    )
