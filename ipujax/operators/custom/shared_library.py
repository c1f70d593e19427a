"""Loads shared libraries of users, and registers their functions with XLA."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
import threading
from pathlib import Path

import jax

from ipujax.ground import CustomOpError, CustomOpFileError
from ipujax.operators.custom import elf, library_probe
from ipujax.operators.custom.error import xla_target_name

_POPLAR_LEVEL = "custom_op_api_level"  # a symbol of libraries written for Poplar
_HANDLER = 'XLA_FFI_DEFINE_HANDLER_SYMBOL in the library ("Custom operations" in the documentation)'

_BUILD = "build it with `g++ -shared -fPIC` for this machine, with all that it needs"
# A handler answers at once; a function that takes longer is none.
PROBE_SECONDS = 20

Identity = tuple[int, int, int]
"""Tells a file from another of the same name: inode, size and time."""

_lock = threading.Lock()
_libraries: dict[str, tuple[Identity, ctypes.CDLL]] = {}
_targets: set[str] = set()


def register_user_function(path: str, symbol: str, call_line: str) -> str:
    """Loads a library and registers one of its functions; returns its name in XLA.

    Args:
      path: the library's file, as `resolve_library_path` gives it.
      symbol: the function's C name.
      call_line: the user's line, for errors.

    Raises:
      CustomOpError: the library cannot be loaded, was built for something else, or has no such
        function.
    """
    name = xla_target_name(path, symbol)
    with _lock:
        identity = _file_identity(path)
        if name not in _targets:
            wrong = _find_loading_fault(path, symbol, identity)
            if wrong:
                raise CustomOpError(
                    f"the library {path!r} cannot be loaded: {wrong}", where=call_line, fix=_BUILD
                )
        library = _load_library(path, identity, call_line)
        if name not in _targets:
            function = _find_symbol(library, path, symbol, call_line)
            _check_handler(path, symbol, identity, call_line)
            _register_target(name, function, path, symbol, call_line)
            _targets.add(name)
    return name


def _file_identity(path: str) -> Identity:
    stat = os.stat(path)
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _find_loading_fault(path: str, symbol: str, identity: Identity) -> str:
    """Describes why loading a library would crash the process, or returns ''."""
    if path in _libraries:
        return ""
    wrong = elf.find_library_fault(path)
    if wrong:
        return wrong
    is_loaded, status = _probe_function(path, symbol, identity)
    return "" if is_loaded or status >= 0 else f"a process that tried died of signal {-status}"


def _check_handler(path: str, symbol: str, identity: Identity, call_line: str) -> None:
    _, status = _probe_function(path, symbol, identity)
    if status in (library_probe.HANDLER, library_probe.UNKNOWN):
        return
    probe_result = (
        f"asked what it is, it died of signal {-status}" if status < 0 else "it says nothing of it"
    )
    raise CustomOpError(
        f"{symbol!r} of the library {path!r} is no XLA FFI handler: {probe_result}",
        where=call_line,
        fix=f"define it with {_HANDLER}, or name the right one with `op_name`",
    )


@functools.lru_cache(maxsize=1024)
def _probe_function(path: str, symbol: str, identity: Identity) -> tuple[bool, int]:
    """Returns whether a separate process could load a library, and its exit status (`probe`)."""
    del identity  # another file has another answer
    if not sys.executable:
        return True, library_probe.UNKNOWN  # Python inside of another program
    command = [sys.executable, "-I", "-S", library_probe.__file__, path, symbol]
    ran = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        probe_output, _ = ran.communicate(timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        ran.kill()
        probe_output, _ = ran.communicate()
    return library_probe.LOADED in probe_output, ran.returncode


def resolve_library_path(library_path: object, call_line: str) -> str:
    """Returns the full path of a library that exists.

    Raises:
      CustomOpFileError: it does not.
      CustomOpError: the argument is no path.
    """
    if not isinstance(library_path, (str, os.PathLike)):
        raise CustomOpError(
            f"library_path is {library_path!r}", where=call_line, fix="give the path of a library"
        )
    path = Path(library_path).resolve()  # pyright: ignore[reportUnknownArgumentType]
    if not path.is_file():
        raise CustomOpFileError(
            f"there is no library {str(path)!r}",
            where=call_line,
            fix="build it first (g++ -shared -fPIC), or give its full path: relative ones "
            f"start from {os.getcwd()!r}",
        )
    return str(path)


def _load_library(path: str, identity: Identity, call_line: str) -> ctypes.CDLL:
    if path in _libraries:
        loaded_identity, library = _libraries[path]
        if loaded_identity != identity:
            raise CustomOpError(
                f"the library {path!r} has changed since this process loaded it",
                where=call_line,
                fix="start Python anew, or build the library under another name",
            )
        return library
    try:
        library = ctypes.CDLL(path)
    except OSError as wrong:
        raise CustomOpError(
            f"the library {path!r} cannot be loaded: {wrong}", where=call_line, fix=_BUILD
        ) from wrong
    if hasattr(library, _POPLAR_LEVEL):
        level = ctypes.c_int32.in_dll(library, _POPLAR_LEVEL).value
        raise CustomOpError(
            f"the library {path!r} was written for Poplar (it exports {_POPLAR_LEVEL} = {level}); "
            "here functions are XLA FFI handlers",
            where=call_line,
            fix=f"write them with {_HANDLER}, and remove {_POPLAR_LEVEL}",
        )
    _libraries[path] = identity, library
    return library


def _find_symbol(library: ctypes.CDLL, path: str, symbol: str, call_line: str) -> object:
    try:
        return library[symbol]
    except AttributeError as wrong:
        raise CustomOpError(
            f"the library {path!r} has no function {symbol!r}",
            where=call_line,
            fix=f"define it with {_HANDLER}, or name the right one with `op_name`; "
            f"`nm -D` lists what a library has",
        ) from wrong


def _register_target(name: str, function: object, path: str, symbol: str, call_line: str) -> None:
    try:
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(function), platform="cpu")
    except jax.errors.JaxRuntimeError as wrong:
        raise CustomOpError(
            f"XLA refuses {symbol!r} of the library {path!r}: {wrong}",
            where=call_line,
            fix="build the library anew with the headers of the installed jaxlib "
            f"(-I{jax.ffi.include_dir()})",
        ) from wrong
