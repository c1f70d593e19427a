"""Shared libraries with a user's functions, and the functions that XLA has been told of."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax

from ipujax.errors import CustomOpError, CustomOpFileError
from ipujax.operators.custom import elf, probe
from ipujax.operators.custom.error import target_name

_POPLAR_LEVEL = "custom_op_api_level"  # what libraries for the original say of themselves
_HANDLER = 'XLA_FFI_DEFINE_HANDLER_SYMBOL in the library ("Custom operations" in the documentation)'

_BUILD = "build it with `g++ -shared -fPIC` for this machine, with all that it needs"
# A handler answers at once; what takes longer is none.
PROBE_SECONDS = 20

Identity = tuple[int, int, int]
"""What tells a file from another of its name: inode, size and time."""

_lock = threading.Lock()
_libraries: dict[str, tuple[Identity, ctypes.CDLL]] = {}
_targets: set[str] = set()


def target(path: str, symbol: str, where: str) -> str:
    """The name under which XLA knows a function of a library; loads and registers it.

    Args:
      path: the library's file, as `resolved` gives it.
      symbol: the function's C name.
      where: the user's line, for errors.

    Raises:
      CustomOpError: the library cannot be loaded, was built for something else, or has no such
        function.
    """
    name = target_name(path, symbol)
    with _lock:
        identity = _identity(path)
        if name not in _targets:
            wrong = _fault(path, symbol, identity)
            if wrong:
                raise CustomOpError(
                    f"the library {path!r} cannot be loaded: {wrong}", where=where, fix=_BUILD
                )
        library = _loaded(path, identity, where)
        if name not in _targets:
            function = _function(library, path, symbol, where)
            _check_handler(path, symbol, identity, where)
            _register(name, function, path, symbol, where)
            _targets.add(name)
    return name


def _identity(path: str) -> Identity:
    stat = os.stat(path)
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _fault(path: str, symbol: str, identity: Identity) -> str:
    """Why a library would crash who loads it, or ''."""
    if path in _libraries:
        return ""
    wrong = elf.fault(path)
    if wrong:
        return wrong
    is_loaded, status = _asked(path, symbol, identity)
    return "" if is_loaded or status >= 0 else f"a process that tried died of signal {-status}"


def _check_handler(path: str, symbol: str, identity: Identity, where: str) -> None:
    _, status = _asked(path, symbol, identity)
    if status in (probe.HANDLER, probe.UNKNOWN):
        return
    how = (
        f"asked what it is, it died of signal {-status}" if status < 0 else "it says nothing of it"
    )
    raise CustomOpError(
        f"{symbol!r} of the library {path!r} is no XLA FFI handler: {how}",
        where=where,
        fix=f"define it with {_HANDLER}, or name the right one with `op_name`",
    )


@functools.lru_cache(maxsize=1024)
def _asked(path: str, symbol: str, identity: Identity) -> tuple[bool, int]:
    """Whether a process of its own could load a library, and its exit status, see `probe`."""
    del identity  # another file has another answer
    if not sys.executable:
        return True, probe.UNKNOWN  # Python inside of another program
    command = [sys.executable, "-I", "-S", probe.__file__, path, symbol]
    ran = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        said, _ = ran.communicate(timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        ran.kill()
        said, _ = ran.communicate()
    return probe.LOADED in said, ran.returncode


def resolved(library_path: Any, where: str) -> str:
    """The full path of a library that exists.

    Raises:
      CustomOpFileError: it does not.
      CustomOpError: the argument is no path.
    """
    if not isinstance(library_path, (str, os.PathLike)):
        raise CustomOpError(
            f"library_path is {library_path!r}", where=where, fix="give the path of a library"
        )
    path = Path(library_path).resolve()  # pyright: ignore[reportUnknownArgumentType]
    if not path.is_file():
        raise CustomOpFileError(
            f"there is no library {str(path)!r}",
            where=where,
            fix="build it first (g++ -shared -fPIC), or give its full path: relative ones "
            f"start from {os.getcwd()!r}",
        )
    return str(path)


def _loaded(path: str, identity: Identity, where: str) -> ctypes.CDLL:
    if path in _libraries:
        known, library = _libraries[path]
        if known != identity:
            raise CustomOpError(
                f"the library {path!r} has changed since this process loaded it",
                where=where,
                fix="start Python anew, or build the library under another name",
            )
        return library
    try:
        library = ctypes.CDLL(path)
    except OSError as wrong:
        raise CustomOpError(
            f"the library {path!r} cannot be loaded: {wrong}", where=where, fix=_BUILD
        ) from wrong
    if hasattr(library, _POPLAR_LEVEL):
        level = ctypes.c_int32.in_dll(library, _POPLAR_LEVEL).value
        raise CustomOpError(
            f"the library {path!r} was written for Poplar (it exports {_POPLAR_LEVEL} = {level}); "
            "here functions are XLA FFI handlers",
            where=where,
            fix=f"write them with {_HANDLER}, and remove {_POPLAR_LEVEL}",
        )
    _libraries[path] = identity, library
    return library


def _function(library: ctypes.CDLL, path: str, symbol: str, where: str) -> Any:
    try:
        return library[symbol]
    except AttributeError as wrong:
        raise CustomOpError(
            f"the library {path!r} has no function {symbol!r}",
            where=where,
            fix=f"define it with {_HANDLER}, or name the right one with `op_name`; "
            f"`nm -D` lists what a library has",
        ) from wrong


def _register(name: str, function: Any, path: str, symbol: str, where: str) -> None:
    try:
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(function), platform="cpu")
    except jax.errors.JaxRuntimeError as wrong:
        raise CustomOpError(
            f"XLA refuses {symbol!r} of the library {path!r}: {wrong}",
            where=where,
            fix="build the library anew with the headers of the installed jaxlib "
            f"(-I{jax.ffi.include_dir()})",
        ) from wrong
