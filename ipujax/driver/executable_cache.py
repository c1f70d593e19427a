"""The executable cache of `--executable_cache_path`: XLA's cache and one marker file per program.

XLA keeps the kernels; beside them stands one small file per program, so that a program that was
compiled before, in this process or another, counts as loaded and not as compiled. That is so only
if XLA does find all kernels: they may be gone, or be for other flags of XLA's or another machine.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from ipujax.ground import count_replica_groups, files
from ipujax.system import (
    VARIABLE,
    SystemOptions,
    config_key,
    executable_flags_key,
    get_logger,
    read_poplar_flags,
)
from lowering import ir, text_of_equation_contexts

_lock = threading.Lock()
_chosen: Path | None = None
_OPTIONS = {
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
_SWITCH = "jax_enable_compilation_cache"
_CONNECTION = "device_connection."
# The events that JAX reports for each lookup in XLA's cache and for each hit.
_LOOKED, _FOUND = (
    f"/jax/compilation_cache/{event}" for event in ("compile_requests_use_cache", "cache_hits")
)


def cache_entry_path(fingerprint: Callable[[], str]) -> Path | None:
    """Returns the path of the file that marks a program as compiled; None without a cache."""
    folder = cache_folder()
    return None if folder is None else folder / f"{fingerprint()}.ipujax.json"


def is_compiled_already(entry: Path | None) -> bool:
    """Returns whether a program has been compiled before; False for an unreadable folder."""
    return entry is not None and os.path.exists(entry)


def mark_as_compiled(entry: Path | None, name: str) -> None:
    """Writes the file that marks a program as compiled, if there is a cache.

    A folder that cannot be written is logged once; the program is compiled all the same.
    """
    if entry is None:
        return
    try:
        files.write_text(entry, json.dumps({"program": name, "jax": jax.__version__}))
    except OSError as error:
        _warn_of_unwritable(str(entry.parent), error.strerror or str(error))


@functools.cache
def _warn_of_unwritable(folder: str, reason: str) -> None:
    """Logs once per process and reason that programs are not kept in a folder."""
    get_logger().warning(
        "compiled programs are not kept in %s, and the program goes on without: %s; make room "
        "there, or name another folder in %s",
        *(folder, reason, _describe_folder_setting()),
    )


def _describe_folder_setting() -> str:
    """Returns the setting in which the user has named the folder."""
    if _chosen is None:
        return f"{VARIABLE}=--executable_cache_path=FOLDER"
    return "POPTORCH_CACHE_DIR, enableExecutableCaching or cachePath"


@contextlib.contextmanager
def watch_cache_misses() -> Generator[Callable[[], bool]]:
    """Yields a function that tells whether XLA's cache has missed a kernel in this block."""
    counts: Counter[str] = Counter()

    def count_event(event: str, **details: object) -> None:
        del details
        counts[event] += 1

    jax.monitoring.register_event_listener(count_event)
    try:
        yield lambda: counts[_LOOKED] > counts[_FOUND]
    finally:
        jax.monitoring.unregister_event_listener(count_event)


def compute_fingerprint(program: ir.Program, engine: str, config: SystemOptions) -> str:
    """Returns a hash of everything that compilation depends on; equal in all processes."""
    # When to attach is no part of a program: what PRE_COMPILE compiled is for others to load.
    options = [option for option in config_key(config) if _CONNECTION not in option[0]]
    parts = [
        jax.__version__,
        engine,
        program_text_with_constants(program),
        repr(executable_flags_key()),
        repr(options),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def program_text_with_constants(program: ir.Program) -> str:
    """Returns the text of a program with its kernels' jaxprs and digests of its constants."""
    kernels = [
        n.kernel for n in ir.walk_nodes(program.body) if isinstance(n, (ir.Execute, ir.HostCall))
    ]
    constants = [hashlib.sha256(np.asarray(data).tobytes()) for _, data in program.constants]
    digests = (f"constant {n}: {item.hexdigest()}" for n, item in enumerate(constants))
    codes = (f"{each.jaxpr}\n{text_of_equation_contexts(each.jaxpr)}" for each in kernels)
    return "\n".join([ir.to_text(program), *codes, *digests])


def activate_cache() -> bool:
    """Turns on XLA's kernel cache in the folder of the flag; returns whether there is one.

    XLA's cache is one for the process, so it stays on, also for functions of plain JAX. Where
    `_may_cache_kernels` says no, it is off.
    """
    folder = cache_folder()
    if not _may_cache_kernels():
        with _lock:
            if getattr(jax.config, _SWITCH):
                jax.config.update(_SWITCH, False)
                compilation_cache.reset_cache()  # it asks only once
    if folder is None:
        return False
    jax_options = {"jax_compilation_cache_dir": str(folder), **_OPTIONS}
    with _lock:
        if any(getattr(jax.config, name) != value for name, value in jax_options.items()):
            for name, value in jax_options.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()  # it opens its folder only once
    return True


def set_cache_folder(folder: str | os.PathLike[str] | None) -> None:
    """Keeps what is compiled from now on in a folder, whatever `TF_POPLAR_FLAGS` says.

    There is one folder for the whole process, as XLA has.

    Args:
      folder: it is made when it is needed; None for what the flags say.
    """
    global _chosen
    _chosen = None if folder is None else Path(folder)


def _may_cache_kernels() -> bool:
    """Returns whether kernels can be kept in a cache and loaded from it.

    Those of several processes on CPUs cannot: only the first process would have some, and the
    collectives of a loaded kernel run in another order than those of a compiled one, so that the
    processes would wait for one another for ever (JAX 0.10.2).
    """
    return count_replica_groups() == 1 or jax.default_backend() != "cpu"


def cache_folder() -> Path | None:
    """Returns the folder of what is compiled, which is made if need be; None without a cache."""
    if not _may_cache_kernels():
        return None
    path = _chosen or read_poplar_flags().executable_cache_path
    return _make_folder(Path(path)) if path else None


def _make_folder(folder: Path) -> Path | None:
    """Creates a folder if needed; returns None, with a warning, if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # a path with a null character
        _warn_of_unwritable(str(folder), getattr(error, "strerror", None) or str(error))
        return None
    return folder
