"""Writes and reads checkpoints as folders whose arrays orbax holds, if it is installed.

Orbax knows them by their number among the leaves. It takes no empty arrays.
"""

from __future__ import annotations

import contextlib
import dataclasses as dc
import errno
import importlib
import json
import logging
import math
import os
import types
import zlib
from collections.abc import Container, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from ipujax.checkpoints.array_bytes import allocate_array, extend_crc, read_parts
from ipujax.checkpoints.contents import Contents, ForeignError, decode_contents, encode_contents
from ipujax.checkpoints.leaves import Leaf, ReadArray
from ipujax.ground import CheckpointError, CheckpointImportError, files, json_text
from ipujax.system import share_absl_format

_CONTENTS, _SUMS, _ARRAYS = "ipujax.json", "sums.json", "arrays"
_MOST = 2**30  # bytes of the contents
_MOST_LAYOUT = 2**20  # bytes of what is said of one array
_MOST_AT_ONCE = 2**27  # bytes of arrays that are written or read side by side


@dc.dataclass(frozen=True)
class _UnreadArray:
    """An array that is read from its devices when its turn comes.

    Attributes:
      number: its number among the leaves.
      size: bytes.
      read: brings it to the host.
    """

    number: str
    size: int
    read: ReadArray


def is_installed() -> bool:
    """Returns whether orbax is installed."""
    try:
        _import_orbax()
    except ImportError:
        return False
    return True


def write(path: files.StrPath, contents: Contents, readers: Sequence[ReadArray]) -> None:
    """Writes a checkpoint atomically: completely or not at all.

    Arrays are brought to the host in batches of `_MOST_AT_ONCE` bytes, or one array.

    Raises:
      OSError: a folder that cannot be written.
    """
    with files.create_complete_folder(path) as folder:
        files.write_text(os.path.join(folder, _CONTENTS), encode_contents(contents))
        filled = {
            str(n): _UnreadArray(str(n), leaf.raw_size, read)
            for n, (leaf, read) in enumerate(zip(contents.leaves, readers, strict=True))
            if leaf.raw_size
        }
        if not filled:
            return
        try:
            sums = _write_with_orbax(os.path.join(folder, _ARRAYS), filled)
        except CheckpointError:  # of an array that cannot be read
            raise
        except Exception as error:
            raise OSError(errno.EIO, f"orbax says: {error}", path) from error
        # Orbax keeps no checksums of files that are not compressed.
        files.write_text(os.path.join(folder, _SUMS), json.dumps(sums))


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
) -> Generator[tuple[Leaf, np.ndarray]]:
    """Yields the leaves of these names with their arrays.

    An array that is one file of nothing but its numbers, as `write` has orbax write it, is read
    from there in a fraction of the time. Others are read by orbax, in batches of `_MOST_AT_ONCE`
    bytes, or one array.

    Raises:
      ForeignError: what orbax cannot read.
      CheckpointImportError: (an `ImportError`) orbax is needed, and it is not installed.
    """
    chosen = {str(n): leaf for n, leaf in enumerate(contents.leaves) if leaf.name in names}
    filled = {n: leaf for n, leaf in chosen.items() if leaf.raw_size}
    plain_files = {n: _find_plain_file(path, leaf, n) for n, leaf in filled.items()}
    sums = _read_sums(path) if filled else None
    with ThreadPoolExecutor(1) as checking:
        for numbers in _split_into_batches({n: leaf.raw_size for n, leaf in chosen.items()}):
            by_orbax = {n: filled[n] for n in numbers if n in filled and plain_files[n] is None}
            arrays = _read_with_orbax(path, by_orbax) if by_orbax else {}
            _check_sums(sums, by_orbax, arrays)
            for n in numbers:
                leaf, file = chosen[n], plain_files.get(n)
                if file is not None:
                    yield leaf, _read_plain_file(file, n, leaf, sums, checking)
                elif n in by_orbax:
                    yield leaf, arrays.pop(n)
                else:
                    yield leaf, np.empty(leaf.raw_shape, leaf.raw_dtype)


def _split_into_batches(sizes: Mapping[str, int]) -> Generator[list[str]]:
    """Yields the names of arrays in batches of at most `_MOST_AT_ONCE` bytes, or one array."""
    batch: list[str] = []
    total = 0
    for name, size in sizes.items():
        if batch and total + size > _MOST_AT_ONCE:
            yield batch
            batch, total = [], 0
        batch.append(name)
        total += size
    if batch:
        yield batch


def _find_plain_file(path: files.StrPath, leaf: Leaf, number: str) -> str | None:
    """Returns the file that holds an array's bytes and nothing else; None if there is none.

    Raises:
      ForeignError: an array whose layout claims another shape or chunks larger than the array:
        tensorstore takes the memory that a file asks for, and ends the process if there is none.
    """
    folder = os.path.join(path, _ARRAYS, number)
    try:
        content = files.read_bytes(os.path.join(folder, ".zarray"), _MOST_LAYOUT)
        layout: Any = json_text.parse_bounded_json(content)
    except FileNotFoundError:  # of another driver of orbax's
        return None
    except ValueError as error:
        raise ForeignError(f"is damaged: the layout of `{leaf.name}`: {error}") from error
    sizes, pieces = (_layout_sizes(layout, key) for key in ("shape", "chunks"))
    shape = leaf.raw_shape
    if sizes != shape or pieces is None or math.prod(pieces) > max(math.prod(shape), 1):
        raise ForeignError(f"is damaged: the layout of `{leaf.name}` is not that of its array")
    plain = {"dtype": np.dtype(leaf.raw_dtype).str, "order": "C", "zarr_format": 2}
    is_plain = pieces == shape and all(layout.get(key) == value for key, value in plain.items())
    if not is_plain or layout.get("compressor") or layout.get("filters"):
        return None
    separator = layout.get("dimension_separator", ".")
    file = os.path.join(folder, str(separator).join("0" * len(shape)) or "0")
    return file if separator in (".", "/") and os.path.isfile(file) else None


def _read_plain_file(
    file: str,
    number: str,
    leaf: Leaf,
    sums: Mapping[str, object] | None,
    checking: ThreadPoolExecutor,
) -> np.ndarray:
    """Reads an array from a file of its bytes.

    Raises:
      ForeignError: a file of another size, or of another checksum than was written.
    """
    with files.open_regular_file(file) as opened:
        if os.fstat(opened.fileno()).st_size != leaf.raw_size:
            raise ForeignError(f"is damaged: the file of `{leaf.name}` is not of its size")
        array, crc = allocate_array(leaf), checking.submit(zlib.crc32, b"")
        for part in read_parts(opened, array, leaf):
            if sums is not None:
                crc = checking.submit(extend_crc, part, crc)
    if sums is not None and sums.get(number) != crc.result():
        raise ForeignError(f"is damaged: the numbers of `{leaf.name}` are others")
    return array


def _layout_sizes(layout: object, key: str) -> tuple[int, ...] | None:
    """Returns the sizes under a key of an array's layout; None if there are none."""
    sizes: Any = layout.get(key) if isinstance(layout, dict) else None  # pyright: ignore[reportUnknownMemberType]
    is_right = isinstance(sizes, list) and all(type(size) is int and size >= 0 for size in sizes)  # pyright: ignore[reportUnknownVariableType]
    return tuple(sizes) if is_right else None


def _read_sums(path: files.StrPath) -> Mapping[str, object] | None:
    """Reads the checksums of all arrays by their numbers; None for older checkpoints."""
    try:
        sums: Any = json_text.parse_bounded_json(files.read_bytes(os.path.join(path, _SUMS), _MOST))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ForeignError(f"is damaged: its {_SUMS}: {error}") from error
    if not isinstance(sums, dict):
        raise ForeignError(f"is damaged: its {_SUMS} has no checksums by numbers")
    return sums  # pyright: ignore[reportUnknownVariableType]


def _check_sums(
    sums: Mapping[str, object] | None,
    leaves: Mapping[str, Leaf],
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Raises an error if arrays differ from those written.

    Raises:
      ForeignError: such arrays.
    """
    for n, array in arrays.items():
        leaf = leaves[n]
        if (array.dtype.name, array.shape) != (leaf.raw_dtype, leaf.raw_shape):
            raise ForeignError(f"does not hold the {leaf} that it says `{leaf.name}` is")
        if sums is not None and sums.get(n) != zlib.crc32(_array_bytes(array)):
            raise ForeignError(f"is damaged: the numbers of `{leaf.name}` are others")


def _array_bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _write_with_orbax(path: str, arrays: Mapping[str, _UnreadArray]) -> dict[str, int]:
    """Writes arrays, and returns their checksums by their numbers."""
    orbax = _import_orbax()
    sums: dict[str, int] = {}
    registry = orbax.type_handlers.create_type_handler_registry(
        (_UnreadArray, _build_batch_handler(orbax, sums))
    )
    with _open_checkpointer(orbax, type_handler_registry=registry) as checkpointer:
        checkpointer.save(path, dict(arrays))
    return sums


def _build_batch_handler(orbax: Any, sums: dict[str, int]) -> object:
    """Returns what tells orbax how to write unread arrays; it puts their checksums in a dict."""

    class BatchHandler(orbax.type_handlers.NumpyHandler):  # pyright: ignore[reportUntypedBaseClass]
        async def serialize(
            self, values: Sequence[_UnreadArray], infos: Sequence[Any], args: Sequence[Any]
        ) -> Sequence[Any]:
            position_of = {value.number: i for i, value in enumerate(values)}
            for numbers in _split_into_batches({value.number: value.size for value in values}):
                positions = [position_of[number] for number in numbers]
                await self._write_batch(
                    [values[i] for i in positions],
                    [infos[i] for i in positions],
                    [args[i] for i in positions],
                )
            return []

        async def _write_batch(
            self, batch: Sequence[_UnreadArray], infos: Sequence[Any], args: Sequence[Any]
        ) -> None:
            arrays = [unread.read() for unread in batch]
            futures = await super().serialize(arrays, infos, args)
            for unread, array in zip(batch, arrays, strict=True):
                sums[unread.number] = zlib.crc32(_array_bytes(array))
            for future in futures:
                future.result()

    return BatchHandler(deepcopy_host_arrays=False)  # nobody changes them meanwhile


def _read_with_orbax(path: files.StrPath, leaves: Mapping[str, Leaf]) -> dict[str, np.ndarray]:
    try:
        orbax = _import_orbax()
    except ImportError as error:
        raise CheckpointImportError(
            f"{os.fspath(path)} was written by orbax, which is not installed here",
            fix="pip install 'ipujax[checkpoint]'",
        ) from error
    empty_arrays = {n: np.empty(leaf.raw_shape, leaf.raw_dtype) for n, leaf in leaves.items()}
    kinds = dict.fromkeys(empty_arrays, orbax.RestoreArgs(restore_type=np.ndarray))
    restore_args = orbax.args.PyTreeRestore(empty_arrays, restore_args=kinds, partial_restore=True)
    try:
        with _open_checkpointer(orbax) as checkpointer:
            return checkpointer.restore(os.path.join(path, _ARRAYS), args=restore_args)
    except Exception as error:
        raise ForeignError(f"cannot be read by orbax: {error}") from error


@contextlib.contextmanager
def _open_checkpointer(orbax: Any, **handler_options: object) -> Generator[Any]:
    log = logging.getLogger("absl")
    log.addFilter(_is_not_chatter)
    share_absl_format()
    try:
        # Numbers of a training hardly get smaller, and compressing them takes ten times as long;
        # a file for each array is written and read in half the time of a database of pieces.
        alone = _single_process_options(orbax)
        handler = orbax.PyTreeCheckpointHandler(
            use_compression=False,
            use_ocdbt=False,
            multiprocessing_options=alone,
            **handler_options,
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
