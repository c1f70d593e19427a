"""Checkpoints as a folder each, whose arrays orbax writes and reads; for who has it installed.

Orbax knows them by their number among the leaves. It takes no empty arrays.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import logging
import math
import os
import zlib
from collections.abc import Container, Generator, Mapping
from typing import Any

import jax
import numpy as np

from ipujax.checkpoints.contents import Contents, ForeignError, from_text, to_text
from ipujax.checkpoints.leaves import Leaf
from ipujax.errors import CheckpointImportError
from ipujax.host import files, json_text

_CONTENTS, _SUMS, _ARRAYS = "ipujax.json", "sums.json", "arrays"
_MOST = 2**30  # bytes of the contents
_MOST_LAYOUT = 2**20  # bytes of what is said of one array


def is_installed() -> bool:
    """Whether orbax can write checkpoints."""
    try:
        _orbax()
    except ImportError:
        return False
    return True


def write(path: files.StrPath, contents: Contents, arrays: list[np.ndarray]) -> None:
    """Writes a checkpoint whole, or nothing.

    Raises:
      OSError: a folder that cannot be written.
    """
    with files.new_folder(path) as folder:
        files.write_text(os.path.join(folder, _CONTENTS), to_text(contents))
        filled = {str(n): array for n, array in enumerate(arrays) if array.size}
        if not filled:
            return
        # Orbax keeps no checksums of files that are not compressed.
        sums = json.dumps({name: zlib.crc32(_bytes_of(array)) for name, array in filled.items()})
        files.write_text(os.path.join(folder, _SUMS), sums)
        try:
            with _checkpointer(_orbax()) as checkpointer:
                checkpointer.save(os.path.join(folder, _ARRAYS), filled)
        except Exception as error:
            raise OSError(errno.EIO, f"orbax says: {error}", path) from error


def read_contents(path: files.StrPath) -> Contents:
    """What a folder says of itself.

    Raises:
      ForeignError: no checkpoint of ours.
      OSError: a folder that cannot be read.
    """
    try:
        return from_text(files.read_bytes(os.path.join(path, _CONTENTS), _MOST))
    except FileNotFoundError:
        raise ForeignError(f"is no checkpoint of ipujax: it has no {_CONTENTS}") from None
    except files.UnfitFileError as error:
        raise ForeignError(f"is no checkpoint of ipujax: its {_CONTENTS} {error}") from error


def read_arrays(
    path: files.StrPath, contents: Contents, names: Container[str]
) -> dict[str, np.ndarray]:
    """The arrays of these names.

    Raises:
      ForeignError: what orbax cannot read.
      CheckpointImportError: (an `ImportError`) orbax is not installed.
    """
    chosen = {str(n): leaf for n, leaf in enumerate(contents.leaves) if leaf.name in names}
    arrays = {n: np.empty(leaf.raw_shape, leaf.raw_dtype) for n, leaf in chosen.items()}
    filled = {n: array for n, array in arrays.items() if array.size}
    if filled:
        for n, array in filled.items():
            _check_layout(path, chosen[n], n, array.shape)
        arrays |= _read(path, filled)
        _check(path, chosen, {n: arrays[n] for n in filled})
    return {leaf.name: arrays[n] for n, leaf in chosen.items()}


def _check_layout(path: files.StrPath, leaf: Leaf, number: str, shape: tuple[int, ...]) -> None:
    """Refuses an array whose file claims another shape, or pieces larger than the array.

    Tensorstore takes the memory that a file asks for, and ends the process if there is none.

    Raises:
      ForeignError: such an array.
    """
    name = os.path.join(path, _ARRAYS, number, ".zarray")
    try:
        layout = json_text.parse(files.read_bytes(name, _MOST_LAYOUT))
    except FileNotFoundError:  # of another driver of orbax's
        return
    except ValueError as error:
        raise ForeignError(f"is damaged: the layout of `{leaf.name}`: {error}") from error
    sizes, pieces = (_sizes_of(layout, key) for key in ("shape", "chunks"))
    if sizes != shape or pieces is None or math.prod(pieces) > max(math.prod(shape), 1):
        raise ForeignError(f"is damaged: the layout of `{leaf.name}` is not that of its array")


def _sizes_of(layout: Any, key: str) -> tuple[int, ...] | None:
    """The sizes under a key of a layout; None if there are none."""
    sizes: Any = layout.get(key) if isinstance(layout, dict) else None  # pyright: ignore[reportUnknownMemberType]
    is_right = isinstance(sizes, list) and all(type(size) is int and size >= 0 for size in sizes)  # pyright: ignore[reportUnknownVariableType]
    return tuple(sizes) if is_right else None


def _check(
    path: files.StrPath, leaves: Mapping[str, Leaf], arrays: Mapping[str, np.ndarray]
) -> None:
    """Refuses arrays that are not those that were written; older checkpoints have no sums.

    Raises:
      ForeignError: such arrays.
    """
    for n, array in arrays.items():
        leaf = leaves[n]
        if (array.dtype.name, array.shape) != (leaf.raw_dtype, leaf.raw_shape):
            raise ForeignError(f"does not hold the {leaf} that it says `{leaf.name}` is")
    try:
        sums = json_text.parse(files.read_bytes(os.path.join(path, _SUMS), _MOST))
    except FileNotFoundError:
        return
    except ValueError as error:
        raise ForeignError(f"is damaged: its {_SUMS}: {error}") from error
    for n, array in arrays.items():
        if not isinstance(sums, dict) or sums.get(n) != zlib.crc32(_bytes_of(array)):  # pyright: ignore[reportUnknownMemberType]
            raise ForeignError(f"is damaged: the numbers of `{leaves[n].name}` are others")


def _bytes_of(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _read(path: files.StrPath, like: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    try:
        orbax = _orbax()
    except ImportError as error:
        raise CheckpointImportError(
            f"{os.fspath(path)} was written by orbax, which is not installed here",
            fix="install it: pip install ipujax[checkpoint]",
        ) from error
    kinds = dict.fromkeys(like, orbax.RestoreArgs(restore_type=np.ndarray))
    wanted = orbax.args.PyTreeRestore(like, restore_args=kinds, partial_restore=True)
    try:
        with _checkpointer(orbax) as checkpointer:
            return checkpointer.restore(os.path.join(path, _ARRAYS), args=wanted)
    except Exception as error:
        raise ForeignError(f"cannot be read by orbax: {error}") from error


@contextlib.contextmanager
def _checkpointer(orbax: Any) -> Generator[Any]:
    log = logging.getLogger("absl")
    log.addFilter(_is_not_chatter)
    try:
        # Numbers of a training hardly get smaller, and compressing them takes ten times as long;
        # a file for each array is written and read in half the time of a database of pieces.
        alone = _alone(orbax)
        handler = orbax.PyTreeCheckpointHandler(
            use_compression=False, use_ocdbt=False, multiprocessing_options=alone
        )
        with orbax.Checkpointer(handler, multiprocessing_options=alone) as checkpointer:
            yield checkpointer
    finally:
        log.removeFilter(_is_not_chatter)


def _alone(orbax: Any) -> Any:
    """Has orbax wait for no other process: whoever reads a checkpoint does so alone."""
    here = jax.process_index()
    return orbax.options.MultiprocessingOptions(
        primary_host=here, active_processes={here}, barrier_sync_key_prefix=f"of_{here}"
    )


def _is_not_chatter(record: logging.LogRecord) -> bool:
    """Orbax tells twenty lines of each checkpoint; what goes wrong it raises."""
    return record.levelno > logging.WARNING or "orbax" not in record.pathname


def _orbax() -> Any:
    return importlib.import_module("orbax.checkpoint")
