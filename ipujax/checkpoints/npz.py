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
import os
import struct
import zipfile
import zlib
from collections.abc import Container, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from urllib.parse import quote

import numpy as np

from ipujax.checkpoints.array_bytes import (
    allocate_array,
    extend_crc,
    read_parts,
    split_into_parts,
)
from ipujax.checkpoints.contents import Contents, ForeignError, decode_contents, encode_contents
from ipujax.checkpoints.leaves import Leaf, ReadArray
from ipujax.ground import files, json_text

_CONTENTS, _SUMS = "ipujax.json", "sums.json"  # no array's name ends like this
_READABLE = " !\"#$&'()*+,/:;<=>?@[]^`{|}~"  # what is printed of ASCII, but % and the backslash
_LONGEST = 2**28  # bytes of a text
_BROKEN = (zipfile.BadZipFile, struct.error, zlib.error, EOFError, OverflowError)
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a member; the lengths of its name and further fields


def write(path: files.StrPath, contents: Contents, readers: Sequence[ReadArray]) -> None:
    """Writes a checkpoint atomically: completely or not at all.

    One array at a time is in the host's memory.

    Raises:
      OSError: a file that cannot be written.
    """
    sums: list[int] = []
    with files.replace_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(_CONTENTS), encode_contents(contents))
        with _Syncing(file.fileno()) as syncing:
            for leaf, read in zip(contents.leaves, readers, strict=True):
                sums.append(_write_member_array(archive, leaf, read(), syncing))
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
) -> Generator[tuple[Leaf, np.ndarray]]:
    """Yields the leaves of these names with their arrays, one read at a time.

    Raises the same errors as `read_contents`.
    """
    with _open_archive(path) as (file, archive), ThreadPoolExecutor(1) as checking:
        sums: list[object] = json_text.parse_bounded_json(_read_text_member(archive, _SUMS))
        for leaf, total in zip(contents.leaves, sums, strict=True):
            if leaf.name in names:
                member = archive.getinfo(_member_name(leaf))
                yield leaf, _read_checked_array(file, member, leaf, total, checking)


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


def _write_member_array(
    archive: zipfile.ZipFile, leaf: Leaf, array: np.ndarray, syncing: _Syncing
) -> int:
    """Writes an array, and returns its sum."""
    total = 0
    with archive.open(zipfile.ZipInfo(_member_name(leaf)), "w", force_zip64=True) as member:
        header = np.lib.format.header_data_from_array_1_0(array)
        np.lib.format.write_array_header_1_0(member, header)
        for part in split_into_parts(array):
            member.write(part)
            total += _sum_words(part)
            syncing.sync_if_idle()
    return total


def _read_checked_array(
    file: io.BufferedReader,
    member: zipfile.ZipInfo,
    leaf: Leaf,
    total: object,
    checking: ThreadPoolExecutor,
) -> np.ndarray:
    """Reads an array.

    Raises:
      ForeignError: one of another sum or checksum than was written.
    """
    array, actual_sum, crc = _read_member_array(file, member, leaf, checking)
    if actual_sum != total or crc != member.CRC:
        raise ForeignError(f"is damaged: the numbers of `{leaf.name}` are others")
    return array


def _read_member_array(
    file: io.BufferedReader, member: zipfile.ZipInfo, leaf: Leaf, checking: ThreadPoolExecutor
) -> tuple[np.ndarray, int, int]:
    """Reads an array, and returns it with its sum and the checksum of its member."""
    header_size = member.file_size - leaf.raw_size
    bytes_available = os.fstat(file.fileno()).st_size - max(member.header_offset, 0)
    if (
        member.compress_type != zipfile.ZIP_STORED
        or not 0 <= header_size < _LONGEST
        or leaf.raw_size > bytes_available
    ):
        raise ForeignError(f"does not hold the {leaf} that it says `{leaf.name}` is")
    file.seek(member.header_offset)
    name_and_extra_size = sum(_LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size)))
    file.seek(name_and_extra_size, os.SEEK_CUR)
    crc = checking.submit(zlib.crc32, file.read(header_size))
    array, total = allocate_array(leaf), 0
    for part in read_parts(file, array, leaf):
        crc = checking.submit(extend_crc, part, crc)
        total += _sum_words(part)
    return array, total, crc.result()


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
