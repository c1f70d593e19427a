"""The executable cache of `--executable_cache_path`: XLA's own cache, and what is known of it.

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
from typing import Any

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from ipujax.distribution.join import instance_count
from ipujax.host import files
from ipujax.system.flags import VARIABLE, flags_key, poplar_flags
from ipujax.system.log import get_logger
from ipujax.system.options import SystemOptions, config_key
from lowering import ir, write_contexts

_lock = threading.Lock()
_chosen: Path | None = None
_OPTIONS = {
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
_SWITCH = "jax_enable_compilation_cache"
_CONNECTION = "device_connection."
# What JAX tells of each function that it looks for in XLA's cache, and of those that it finds.
_LOOKED, _FOUND = (
    f"/jax/compilation_cache/{event}" for event in ("compile_requests_use_cache", "cache_hits")
)


def entry(fingerprint: Callable[[], str]) -> Path | None:
    """The file that is there if a program has been compiled; None without a cache."""
    folder = _folder()
    return None if folder is None else folder / f"{fingerprint()}.ipujax.json"


def is_stored(entry: Path | None) -> bool:
    """Whether a program has been compiled before; false for a folder that cannot be read, too."""
    return entry is not None and os.path.exists(entry)


def store(entry: Path | None, name: str) -> None:
    """Notes that a program of this name has been compiled, if there is a cache.

    A folder that cannot be written is told once; the program has been compiled all the same.
    """
    if entry is None:
        return
    try:
        files.write_text(entry, json.dumps({"program": name, "jax": jax.__version__}))
    except OSError as error:
        _warn_of_unwritable(str(entry.parent), error.strerror or str(error))


@functools.cache
def _warn_of_unwritable(folder: str, reason: str) -> None:
    """Logs that a folder keeps nothing, once in a process for each reason."""
    get_logger().warning(
        "compiled programs are not kept in %s, and the program goes on without: %s; make room "
        "there, or name another folder in %s",
        *(folder, reason, _setting()),
    )


def _setting() -> str:
    """What the user has named the folder in."""
    if _chosen is None:
        return f"{VARIABLE}=--executable_cache_path=FOLDER"
    return "POPTORCH_CACHE_DIR, enableExecutableCaching or cachePath"


@contextlib.contextmanager
def watched() -> Generator[Callable[[], bool]]:
    """Watches XLA's cache in a block; gives what tells whether it lacked anything so far."""
    counts: Counter[str] = Counter()

    def note(event: str, **details: Any) -> None:
        del details
        counts[event] += 1

    jax.monitoring.register_event_listener(note)
    try:
        yield lambda: counts[_LOOKED] > counts[_FOUND]
    finally:
        jax.monitoring.unregister_event_listener(note)


def fingerprint(program: ir.Program, engine: str, config: SystemOptions) -> str:
    """A text that tells what is compiled from everything else that could be, in any process."""
    # When to attach is no part of a program: what PRE_COMPILE compiled is for others to load.
    options = [each for each in config_key(config) if _CONNECTION not in each[0]]
    parts = [jax.__version__, engine, whole_text(program), repr(flags_key()), repr(options)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def whole_text(program: ir.Program) -> str:
    """A program with all that it computes; of large constants, a digest."""
    kernels = [n.kernel for n in ir.walk(program.body) if isinstance(n, (ir.Execute, ir.HostCall))]
    constants = [hashlib.sha256(np.asarray(data).tobytes()) for _, data in program.constants]
    digests = (f"constant {n}: {each.hexdigest()}" for n, each in enumerate(constants))
    codes = (f"{each.jaxpr}\n{write_contexts(each.jaxpr)}" for each in kernels)
    return "\n".join([ir.to_text(program), *codes, *digests])


def activate() -> bool:
    """Has XLA keep its kernels in the folder that the flag names; false if it names none.

    XLA's cache is one for the process, so it stays on, also for functions of plain JAX. Where
    `_may_keep` says no, it is off.
    """
    folder = _folder()
    if not _may_keep():
        with _lock:
            if getattr(jax.config, _SWITCH):
                jax.config.update(_SWITCH, False)
                compilation_cache.reset_cache()  # it asks only once
    if folder is None:
        return False
    wanted = {"jax_compilation_cache_dir": str(folder), **_OPTIONS}
    with _lock:
        if any(getattr(jax.config, name) != value for name, value in wanted.items()):
            for name, value in wanted.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()  # it opens its folder only once
    return True


def keep_in(folder: str | os.PathLike[str] | None) -> None:
    """Keeps what is compiled from now on in a folder, whatever `TF_POPLAR_FLAGS` says.

    There is one folder for the whole process, as XLA has.

    Args:
      folder: it is made when it is needed; None for what the flags say.
    """
    global _chosen
    _chosen = None if folder is None else Path(folder)


def _may_keep() -> bool:
    """Whether kernels can be kept and loaded.

    Those of several processes on CPUs cannot: only the first process would have some, and the
    collectives of a loaded kernel run in another order than those of a compiled one, so that the
    processes would wait for one another for ever (JAX 0.10.2).
    """
    return instance_count() == 1 or jax.default_backend() != "cpu"


def _folder() -> Path | None:
    if not _may_keep():
        return None
    path = _chosen or poplar_flags().executable_cache_path
    return _made(Path(path)) if path else None


def _made(folder: Path) -> Path | None:
    """A folder, which is made if need be; None, with a warning, where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # a path with a null character
        _warn_of_unwritable(str(folder), getattr(error, "strerror", None) or str(error))
        return None
    return folder
