"""Writes and reads checkpoints as one `.npz` file each, which `numpy.load` opens too.

It is a zip archive of arrays under their names, not compressed, and of two texts: what they are,
and the sum of each. Arrays are read right to where they stay. Two things tell damage: the sums of
64 bits, which do not see swapped words, and the 32-bit checksums that every zip has,
which do. These take longer than reading does, and so another thread works them out meanwhile.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Container, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from urllib.parse import quote

import numpy as np

from ipujax.checkpoints.contents import Contents, ForeignError, decode_contents, encode_contents
from ipujax.checkpoints.leaves import Leaf
from ipujax.ground import files, json_text

_CONTENTS, _SUMS = "ipujax.json", "sums.json"  # no array's name ends like this
_AT_ONCE = 2**20  # bytes: what the processor still has in its cache when it sums them up
_ALIGNED = 64  # bytes: as JAX has arrays, so that it need not copy them
_READABLE = " !\"#$&'()*+,/:;<=>?@[]^`{|}~"  # what is printed of ASCII, but % and the backslash
_LONGEST = 2**28  # bytes of a text
_BROKEN = (zipfile.BadZipFile, struct.error, zlib.error, EOFError, OverflowError)
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a member; the lengths of its name and further fields


def write(path: files.StrPath, contents: Contents, arrays: list[np.ndarray]) -> None:
    """Writes a checkpoint atomically: completely or not at all.

    Raises:
      OSError: a file that cannot be written.
    """
    sums: list[int] = []
    with files.replace_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(_CONTENTS), encode_contents(contents))
        with _Syncing(file.fileno()) as syncing:
            for leaf, array in zip(contents.leaves, arrays, strict=True):
                with archive.open(
                    zipfile.ZipInfo(_member_name(leaf)), "w", force_zip64=True
                ) as member:
                    header = np.lib.format.header_data_from_array_1_0(array)
                    np.lib.format.write_array_header_1_0(member, header)
                    total = 0
                    for part in _split_into_parts(array):
                        member.write(part)
                        total += _sum_words(part)
                        syncing.sync_if_idle()
                sums.append(total)
        archive.writestr(zipfile.ZipInfo(_SUMS), json.dumps(sums))


def read_contents(path: files.StrPath) -> Contents:
    """Reads the description of a checkpoint from a file.

    Raises:
      ForeignError: no checkpoint of ipujax, or an incomplete one.
      OSError: a file that cannot be read.
    """
    with _open_archive(path) as (_, archive):
        return decode_contents(_read_text_member(archive, _CONTENTS))


def read_arrays(
    path: files.StrPath, contents: Contents, names: Container[str]
) -> dict[str, np.ndarray]:
    """Reads the arrays of these names; raises the same errors as `read_contents`."""
    arrays: dict[str, np.ndarray] = {}
    with _open_archive(path) as (file, archive), ThreadPoolExecutor(1) as checking:
        sums: list[object] = json_text.parse_bounded_json(_read_text_member(archive, _SUMS))
        for leaf, total in zip(contents.leaves, sums, strict=True):
            if leaf.name not in names:
                continue
            member = archive.getinfo(_member_name(leaf))
            array, actual_sum, crc = _read_member_array(file, member, leaf, checking)
            if actual_sum != total or crc != member.CRC:
                raise ForeignError(f"is damaged: the numbers of `{leaf.name}` are others")
            arrays[leaf.name] = array
    return arrays


def _member_name(leaf: Leaf) -> str:
    """Returns the array's name in the archive, percent-encoded where a zip cannot hold it."""
    return quote(leaf.name, safe=_READABLE, errors="surrogatepass") + ".npy"


@contextlib.contextmanager
def _open_archive(path: files.StrPath) -> Generator[tuple[io.BufferedReader, zipfile.ZipFile]]:
    try:
        with files.open_regular_file(path) as file, zipfile.ZipFile(file) as archive:
            yield file, archive
    except files.UnfitFileError as error:
        raise ForeignError(str(error)) from error
    except (*_BROKEN, KeyError, ValueError, TypeError, NotImplementedError, RuntimeError) as error:
        raise ForeignError(
            f"is no checkpoint of ipujax, or not all of one ({error!r:.400})"
        ) from error


def _read_text_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Reads a text member, which must be uncompressed, so that it is no larger than the file."""
    member = archive.getinfo(name)
    if member.compress_type != zipfile.ZIP_STORED or member.file_size > _LONGEST:
        raise ForeignError(f"is no checkpoint of ipujax: {name} is compressed, or too long")
    return archive.read(member)


def _read_member_array(
    file: io.BufferedReader, member: zipfile.ZipInfo, leaf: Leaf, checking: ThreadPoolExecutor
) -> tuple[np.ndarray, int, int]:
    """Reads an array, and returns it with its sum and the checksum of its member."""
    dtype = np.dtype(leaf.raw_dtype)
    size = math.prod(leaf.raw_shape) * dtype.itemsize
    header_size = member.file_size - size
    bytes_available = os.fstat(file.fileno()).st_size - max(member.header_offset, 0)
    if (
        member.compress_type != zipfile.ZIP_STORED
        or not 0 <= header_size < _LONGEST
        or size > bytes_available
    ):
        raise ForeignError(f"does not hold the {leaf} that it says `{leaf.name}` is")
    file.seek(member.header_offset)
    name_and_extra_size = sum(_LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size)))
    file.seek(name_and_extra_size, os.SEEK_CUR)
    crc = checking.submit(zlib.crc32, file.read(header_size))
    array = _allocate_aligned(leaf.raw_shape, dtype)
    total = 0
    for part in _split_into_parts(array):
        if file.readinto(part) != len(part):
            raise ForeignError(f"ends in the middle of `{leaf.name}`")
        crc = checking.submit(_extend_crc, part, crc)
        total += _sum_words(part)
    return array, total, crc.result()


def _extend_crc(part: memoryview, previous_crc: Future[int]) -> int:
    """Returns the checksum of all bytes up to a part, from the checksum of those before it."""
    return zlib.crc32(part, previous_crc.result())


def _allocate_aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + _ALIGNED, np.uint8)
    start = -room.ctypes.data % _ALIGNED
    return room[start : start + size].view(dtype).reshape(shape)


def _split_into_parts(array: np.ndarray) -> Generator[memoryview]:
    """Yields the bytes of an array in parts."""
    content = array.reshape(-1).view(np.uint8).data
    for start in range(0, len(content), _AT_ONCE):
        yield content[start : start + _AT_ONCE]


def _sum_words(part: memoryview) -> int:
    """Returns the sum of the 64-bit words of a part, plus the bytes left over."""
    content = np.frombuffer(part, np.uint8)
    words = len(content) // 8 * 8
    total = content[:words].view("<u8").sum(dtype=np.uint64)
    return int(total) + int(content[words:].sum(dtype=np.uint64))


class _Syncing:
    """Flushes a growing file to disk in another thread, while more of it is written."""

    def __init__(self, descriptor: int):
        self._descriptor = descriptor
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def __enter__(self) -> _Syncing:
        return self

    def sync_if_idle(self) -> None:
        """Starts to flush the file, unless the last flush still runs."""
        if self._last is None or self._last.done():
            self._raise_sync_error()
            self._last = self._thread.submit(os.fsync, self._descriptor)

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        self._raise_sync_error()

    def _raise_sync_error(self) -> None:
        """Raises the error of the last flush, if it failed."""
        if self._last is not None:
            self._last.result()
