"""Builds shared libraries for tests of custom operations."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import jax
import pytest

SOURCES = Path(__file__).parent / "custom"
_folder = tempfile.TemporaryDirectory(prefix="ipujax-custom-")


def compiler() -> str:
    """The C++ compiler; skips the test where there is none."""
    found = shutil.which("g++")
    if found is None:
        pytest.skip("custom operations are built with g++, which is not installed")
    return found


@functools.cache
def built(source: str, *, before: str = "", name: str = "") -> str:
    """The path of the library of one of the sources, built once.

    Args:
      source: a file of `custom/`.
      before: a folder whose headers come before those of jaxlib.
      name: another name for the library.
    """
    library = Path(_folder.name) / f"{name or Path(source).stem}.so"
    folders = [f"-I{folder}" for folder in (before, jax.ffi.include_dir()) if folder]
    flags = ["-std=c++17", "-O0", "-w", "-shared", "-fPIC", *folders]
    subprocess.run([compiler(), *flags, "-o", library, SOURCES / source], check=True)
    return str(library)
