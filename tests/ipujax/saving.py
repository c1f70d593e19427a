"""What tests of saved executables share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import ipujax as ipu
from ipujax.driver import Executable
from ipujax.driver.saved.read_executable import LoadedExecutable

pytest.importorskip("flatbuffers", reason="the extra `export` is not installed")

ENGINES = ("fused", "replay")


def compiled(
    function: Callable[..., Any], *args: Any, engine: str = "auto", **options: Any
) -> Executable:
    """The executable of a function for these arguments."""
    return ipu.compile(function, engine=engine, **options).lower(*args).compile()


def again(executable: Executable, folder: Path, **queues: Any) -> LoadedExecutable:
    """The executable, saved and loaded; queues by the program's names."""
    path = folder / "program.ipujax"
    executable.save(path)
    return ipu.load_executable(path, queues)


def same(mine: Any, theirs: Any) -> None:
    """Fails unless two pytrees are equal: in structure, dtypes and every bit."""
    assert jax.tree.structure(mine) == jax.tree.structure(theirs)
    for own, other in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert own.dtype == other.dtype
        if jax.numpy.issubdtype(own.dtype, jax.dtypes.prng_key):
            own, other = jax.random.key_data(own), jax.random.key_data(other)
        np.testing.assert_array_equal(np.asarray(own), np.asarray(other))


def entries(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(os.listdir(folder))
