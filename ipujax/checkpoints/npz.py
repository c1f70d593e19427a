"""Checkpoints as one `.npz` each, which `numpy.load` opens too.

It is a zip archive of arrays under their names, not compressed, and of a text that tells what they
are. Arrays are read right to where they stay.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Generator
from urllib.parse import quote

import numpy as np

from ipujax.checkpoints.contents import Contents, ForeignError, from_text, to_text
from ipujax.checkpoints.leaves import Leaf
from ipujax.host import files

_CONTENTS = "ipujax.json"  # no array's name ends like this
_AT_ONCE = 2**22  # bytes: what the processor still has in its cache when it sums them up
_READABLE = " !\"#$&'()*+,/:;<=>?@[]^`{|}~"  # what is printed of ASCII, but % and the backslash
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a member; the lengths of its name and further fields


def write(path: files.StrPath, contents: Contents, arrays: list[np.ndarray]) -> None:
    """Writes a checkpoint whole, or leaves what was there.

    Raises:
      OSError: a file that cannot be written.
    """
    with files.replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(_CONTENTS), to_text(contents))
        for leaf, array in zip(contents.leaves, arrays, strict=True):
            with archive.open(zipfile.ZipInfo(_member(leaf)), "w", force_zip64=True) as member:
                header = np.lib.format.header_data_from_array_1_0(array)
                np.lib.format.write_array_header_1_0(member, header)
                for part in _parts(array):
                    member.write(part)


def read_contents(path: files.StrPath) -> Contents:
    """What a file says of itself.

    Raises:
      ForeignError: no checkpoint of ours, or half of one.
      OSError: a file that cannot be read.
    """
    with _opened(path) as (_, archive):
        return from_text(archive.read(_CONTENTS))


def read_arrays(path: files.StrPath, contents: Contents) -> list[np.ndarray]:
    """The arrays, in the order of the contents; raises as `read_contents`."""
    with _opened(path) as (file, archive):
        return [_read(file, archive.getinfo(_member(leaf)), leaf) for leaf in contents.leaves]


def _member(leaf: Leaf) -> str:
    """The array's name in the archive; what a zip cannot name is written as %C3%A4 is."""
    return quote(leaf.name, safe=_READABLE, errors="surrogatepass") + ".npy"


@contextlib.contextmanager
def _opened(path: files.StrPath) -> Generator[tuple[io.BufferedReader, zipfile.ZipFile]]:
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                yield file, archive
        except (zipfile.BadZipFile, KeyError, struct.error) as error:
            raise ForeignError(
                f"is no checkpoint of ipujax, or not all of one ({error})"
            ) from error


def _read(file: io.BufferedReader, member: zipfile.ZipInfo, leaf: Leaf) -> np.ndarray:
    dtype = np.dtype(leaf.raw_dtype)
    before = member.file_size - math.prod(leaf.raw_shape) * dtype.itemsize
    if member.compress_type != zipfile.ZIP_STORED or before < 0:
        raise ForeignError(f"does not hold the {leaf} that it says `{leaf.name}` is")
    file.seek(member.header_offset)
    file.seek(sum(_LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))), os.SEEK_CUR)
    checksum = zlib.crc32(file.read(before))
    array = np.empty(leaf.raw_shape, dtype)
    for part in _parts(array):
        if file.readinto(part) != len(part):
            raise ForeignError(f"ends in the middle of `{leaf.name}`")
        checksum = zlib.crc32(part, checksum)
    if checksum != member.CRC:
        raise ForeignError(f"is damaged: the checksum of `{leaf.name}` is another")
    return array


def _parts(array: np.ndarray) -> Generator[memoryview]:
    """The bytes of an array, some at a time."""
    content = array.reshape(-1).view(np.uint8).data
    for start in range(0, len(content), _AT_ONCE):
        yield content[start : start + _AT_ONCE]
