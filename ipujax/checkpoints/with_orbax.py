"""Writes and reads checkpoints as folders whose arrays orbax holds, if it is installed.

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
import types
import zlib
from collections.abc import Container, Generator, Mapping
from typing import Any

import jax
import numpy as np

from ipujax.checkpoints.contents import Contents, ForeignError, decode_contents, encode_contents
from ipujax.checkpoints.leaves import Leaf
from ipujax.ground import CheckpointImportError, files, json_text

_CONTENTS, _SUMS, _ARRAYS = "ipujax.json", "sums.json", "arrays"
_MOST = 2**30  # bytes of the contents
_MOST_LAYOUT = 2**20  # bytes of what is said of one array


def is_installed() -> bool:
    """Returns whether orbax is installed."""
    try:
        _import_orbax()
    except ImportError:
        return False
    return True


def write(path: files.StrPath, contents: Contents, arrays: list[np.ndarray]) -> None:
    """Writes a checkpoint atomically: completely or not at all.

    Raises:
      OSError: a folder that cannot be written.
    """
    with files.create_complete_folder(path) as folder:
        files.write_text(os.path.join(folder, _CONTENTS), encode_contents(contents))
        filled = {str(n): array for n, array in enumerate(arrays) if array.size}
        if not filled:
            return
        # Orbax keeps no checksums of files that are not compressed.
        sums = json.dumps({name: zlib.crc32(_array_bytes(array)) for name, array in filled.items()})
        files.write_text(os.path.join(folder, _SUMS), sums)
        try:
            with _open_checkpointer(_import_orbax()) as checkpointer:
                checkpointer.save(os.path.join(folder, _ARRAYS), filled)
        except Exception as error:
            raise OSError(errno.EIO, f"orbax says: {error}", path) from error


def read_contents(path: files.StrPath) -> Contents:
    """Reads the description of a checkpoint from a folder.

    Raises:
      ForeignError: no checkpoint of ipujax.
      OSError: a folder that cannot be read.
    """
    try:
        return decode_contents(files.read_bytes(os.path.join(path, _CONTENTS), _MOST))
    except FileNotFoundError:
        raise ForeignError(f"is no checkpoint of ipujax: it has no {_CONTENTS}") from None
    except files.UnfitFileError as error:
        raise ForeignError(f"is no checkpoint of ipujax: its {_CONTENTS} {error}") from error


def read_arrays(
    path: files.StrPath, contents: Contents, names: Container[str]
) -> dict[str, np.ndarray]:
    """Reads the arrays of these names.

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
        arrays |= _read_with_orbax(path, filled)
        _check_sums(path, chosen, {n: arrays[n] for n in filled})
    return {leaf.name: arrays[n] for n, leaf in chosen.items()}


def _check_layout(path: files.StrPath, leaf: Leaf, number: str, shape: tuple[int, ...]) -> None:
    """Raises an error if an array's file claims another shape or chunks larger than the array.

    Tensorstore takes the memory that a file asks for, and ends the process if there is none.

    Raises:
      ForeignError: such an array.
    """
    name = os.path.join(path, _ARRAYS, number, ".zarray")
    try:
        layout = json_text.parse_bounded_json(files.read_bytes(name, _MOST_LAYOUT))
    except FileNotFoundError:  # of another driver of orbax's
        return
    except ValueError as error:
        raise ForeignError(f"is damaged: the layout of `{leaf.name}`: {error}") from error
    sizes, pieces = (_layout_sizes(layout, key) for key in ("shape", "chunks"))
    if sizes != shape or pieces is None or math.prod(pieces) > max(math.prod(shape), 1):
        raise ForeignError(f"is damaged: the layout of `{leaf.name}` is not that of its array")


def _layout_sizes(layout: object, key: str) -> tuple[int, ...] | None:
    """Returns the sizes under a key of an array's layout; None if there are none."""
    sizes: Any = layout.get(key) if isinstance(layout, dict) else None  # pyright: ignore[reportUnknownMemberType]
    is_right = isinstance(sizes, list) and all(type(size) is int and size >= 0 for size in sizes)  # pyright: ignore[reportUnknownVariableType]
    return tuple(sizes) if is_right else None


def _check_sums(
    path: files.StrPath, leaves: Mapping[str, Leaf], arrays: Mapping[str, np.ndarray]
) -> None:
    """Raises an error if arrays differ from those written; older checkpoints have no sums.

    Raises:
      ForeignError: such arrays.
    """
    for n, array in arrays.items():
        leaf = leaves[n]
        if (array.dtype.name, array.shape) != (leaf.raw_dtype, leaf.raw_shape):
            raise ForeignError(f"does not hold the {leaf} that it says `{leaf.name}` is")
    try:
        sums = json_text.parse_bounded_json(files.read_bytes(os.path.join(path, _SUMS), _MOST))
    except FileNotFoundError:
        return
    except ValueError as error:
        raise ForeignError(f"is damaged: its {_SUMS}: {error}") from error
    for n, array in arrays.items():
        if not isinstance(sums, dict) or sums.get(n) != zlib.crc32(_array_bytes(array)):  # pyright: ignore[reportUnknownMemberType]
            raise ForeignError(f"is damaged: the numbers of `{leaves[n].name}` are others")


def _array_bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _read_with_orbax(
    path: files.StrPath, empty_arrays: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    try:
        orbax = _import_orbax()
    except ImportError as error:
        raise CheckpointImportError(
            f"{os.fspath(path)} was written by orbax, which is not installed here",
            fix="install it: pip install ipujax[checkpoint]",
        ) from error
    kinds = dict.fromkeys(empty_arrays, orbax.RestoreArgs(restore_type=np.ndarray))
    restore_args = orbax.args.PyTreeRestore(empty_arrays, restore_args=kinds, partial_restore=True)
    try:
        with _open_checkpointer(orbax) as checkpointer:
            return checkpointer.restore(os.path.join(path, _ARRAYS), args=restore_args)
    except Exception as error:
        raise ForeignError(f"cannot be read by orbax: {error}") from error


@contextlib.contextmanager
def _open_checkpointer(orbax: Any) -> Generator[Any]:
    log = logging.getLogger("absl")
    log.addFilter(_is_not_chatter)
    try:
        # Numbers of a training hardly get smaller, and compressing them takes ten times as long;
        # a file for each array is written and read in half the time of a database of pieces.
        alone = _single_process_options(orbax)
        handler = orbax.PyTreeCheckpointHandler(
            use_compression=False, use_ocdbt=False, multiprocessing_options=alone
        )
        with orbax.Checkpointer(handler, multiprocessing_options=alone) as checkpointer:
            yield checkpointer
    finally:
        log.removeFilter(_is_not_chatter)


def _single_process_options(orbax: Any) -> object:
    """Returns options with which orbax waits for no other process."""
    process_index = jax.process_index()
    return orbax.options.MultiprocessingOptions(
        primary_host=process_index,
        active_processes={process_index},
        barrier_sync_key_prefix=f"of_{process_index}",
    )


def _is_not_chatter(record: logging.LogRecord) -> bool:
    """Returns whether a log record is no information of orbax, which logs a lot."""
    return record.levelno > logging.WARNING or "orbax" not in record.pathname


def _import_orbax() -> types.ModuleType:
    return importlib.import_module("orbax.checkpoint")
