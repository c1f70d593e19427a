"""Saving and restoring a state of 500 MB, against NumPy writing and reading as many bytes."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ipujax as ipu
from benchmarks.measure import Row, row
from ipujax.checkpoints import npz, with_orbax

PAIRS = 5
ARRAYS, SHAPE = 20, (2500, 2500)  # of float32: 500 MB


def rows() -> list[Row]:
    """As `.npz`, and by orbax where that is installed."""
    found: list[Row] = []
    bytes_of_it = np.random.default_rng(0).random((ARRAYS, *SHAPE), np.float32)
    state = {f"layer_{i}": jnp.array(array) for i, array in enumerate(bytes_of_it)}
    for kind in (npz, with_orbax) if with_orbax.is_installed() else (npz,):
        name = kind.__name__.rpartition(".")[2]
        with tempfile.TemporaryDirectory() as place:
            folder, file = Path(place, "checkpoints"), Path(place, "all.npy")
            own = functools.partial(_save, folder, state, kind is npz)
            saving = f"saving 500 MB ({name}) / numpy.save and fsync"
            found.append(_row(saving, own, functools.partial(_write, file, bytes_of_it)))
            own = functools.partial(_restore, folder, state)
            found.append(_row("  restoring / numpy.load", own, functools.partial(np.load, file)))
    return found


def _row(what: str, ours: Callable[[], Any], baseline: Callable[[], Any]) -> Row:
    return row(what, 2.0, ours, baseline, pairs=PAIRS)


def _save(folder: Path, state: Any, as_npz: bool) -> None:
    known = with_orbax.is_installed
    with_orbax.is_installed = lambda: not as_npz
    try:
        ipu.checkpoint.save(folder, 0, state, keep=1)
    finally:
        with_orbax.is_installed = known


def _restore(folder: Path, state: Any) -> None:
    jax.block_until_ready(ipu.checkpoint.restore(folder, like=state))


def _write(file: Path, array: np.ndarray) -> None:
    """To a new file, as a checkpoint is: the old one stays until that is there."""
    new = file.with_suffix(".new")
    with open(new, "wb") as opened:
        np.save(opened, array)
        opened.flush()
        os.fsync(opened.fileno())
    new.replace(file)
