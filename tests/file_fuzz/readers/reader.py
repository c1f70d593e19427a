"""What the fuzzer knows of a reader."""

from __future__ import annotations

import dataclasses as dc
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

Files: TypeAlias = Mapping[str, bytes]
"""The files of one thing to be read, by their names in a folder."""


@dc.dataclass(frozen=True)
class Reader:
    """A function that reads files which may come from anybody.

    Attributes:
      name: for the command line.
      samples: makes good files, by the samples' names; once in a process.
      change: makes other files of a sample's.
      read: reads the files of a folder, and uses what it has read; None, or what is wrong with
        what came of it, as where damage was not found.
      errors: the classes of errors that it may raise.
      seconds: how long reading may take.
    """

    name: str
    samples: Callable[[], Mapping[str, Files]]
    change: Callable[[Files, random.Random], Files]
    read: Callable[[Path], str | None]
    errors: tuple[type[BaseException], ...]
    seconds: float = 20.0


def write_files(files: Files, folder: Path) -> None:
    """Puts files into an empty folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def read_files(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def changed(files: Files, name: str, content: Any) -> Files:
    """Files of which one holds something else."""
    return {**files, name: content}
