"""The executable cache of `--executable_cache_path`: XLA's own cache, and what is known of it.

XLA keeps the kernels; beside them stands one small file per program, so that a program that was
compiled before, in this process or another, counts as loaded and not as compiled.
"""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from ipujax.host import files
from ipujax.system.flags import flags_key, poplar_flags
from ipujax.system.options import config_key
from lowering import ir

_lock = threading.Lock()
_OPTIONS = {
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
_CONNECTION = "device_connection."


def look_up(lowered: Any) -> bool:
    """Whether the cache holds this program already."""
    return (folder := _folder()) is not None and _entry(folder, lowered).exists()


def store(lowered: Any) -> None:
    """Notes that the program has been compiled."""
    folder = _folder()
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    note = {"program": lowered.program.name, "jax": jax.__version__}
    files.write_text(_entry(folder, lowered), json.dumps(note))


def fingerprint(lowered: Any) -> str:
    """A text that tells what is compiled from everything else that could be, in any process."""
    program: ir.Program = lowered.program
    digest = hashlib.sha256()
    kernels = [n.kernel for n in ir.walk(program.body) if isinstance(n, (ir.Execute, ir.HostCall))]
    # When to attach is no part of a program: what PRE_COMPILE compiled is for others to load.
    config = [each for each in config_key(lowered.device.config) if _CONNECTION not in each[0]]
    parts = [jax.__version__, lowered.chosen_engine, ir.to_text(program)]
    parts += [repr(flags_key()), repr(config)]
    parts += [str(kernel.jaxpr) for kernel in kernels]
    for part in parts:
        digest.update(part.encode())
    for _, data in program.constants:
        digest.update(np.asarray(data).tobytes())
    return digest.hexdigest()


def activate() -> bool:
    """Has XLA keep its kernels in the folder that the flag names; false if it names none.

    XLA's cache is one for the process, so it stays on, also for functions of plain JAX.
    """
    folder = _folder()
    if folder is None:
        return False
    wanted = {"jax_compilation_cache_dir": str(folder), **_OPTIONS}
    with _lock:
        if any(getattr(jax.config, name) != value for name, value in wanted.items()):
            for name, value in wanted.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()  # it opens its folder only once
    return True


def _folder() -> Path | None:
    path = poplar_flags().executable_cache_path
    return Path(path) if path else None


def _entry(folder: Path, lowered: Any) -> Path:
    return folder / f"{fingerprint(lowered)}.ipujax.json"
