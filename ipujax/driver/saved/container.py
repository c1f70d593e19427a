"""Reads and writes the bytes of a saved executable: a header line, a JSON index, and blobs.

    ipujax executable 1 sha256:<of all that follows>
    <8 bytes: length of the index> <the index: JSON, deflated> <blob> <blob> ...

The digest finds whatever was lost or changed on the way. It has no key, so that a file may
come from anybody: what is behind it is checked as well.
"""

from __future__ import annotations

import dataclasses as dc
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from ipujax.ground import ExecutableError, files, json_text

VERSION = 1
"""Of the format; other versions are not read."""

SUFFIX = ".ipujax"
"""Of the names of saved executables in a folder."""

_MAGIC = b"ipujax executable "
_LINE = re.compile(rb"ipujax executable (\d{1,9}) sha256:([0-9a-f]{64})\n")
_LONGEST_LINE = 128  # bytes
_SIZE = 8  # bytes of the index' length
_MOST_BYTES = 2**29  # of an index: a small file could else fill the memory


@dc.dataclass(frozen=True)
class Content:
    """The content of a saved executable: its index and its blobs.

    Attributes:
      index: dicts, lists, texts, numbers, None.
      blobs: bytes that the index speaks of by their numbers.
    """

    index: dict[str, Any]
    blobs: Sequence[bytes | memoryview]


def write_container(content: Content, path: files.StrPath) -> None:
    """Writes a file atomically: completely or not at all.

    Raises:
      OSError: a file that cannot be written.
    """
    with files.replace_file(path) as file:
        for piece in _encode_pieces(content):
            file.write(piece)


def _encode_pieces(content: Content) -> Iterator[bytes | memoryview]:
    """Yields the bytes of a file, piece by piece."""
    index = content.index | {"blobs": [len(blob) for blob in content.blobs]}
    text = json.dumps(index, separators=(",", ":")).encode()
    deflated = zlib.compress(text, 6)
    pieces = [len(deflated).to_bytes(_SIZE, "little"), deflated, *content.blobs]
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    yield _MAGIC + f"{VERSION} sha256:{digest.hexdigest()}\n".encode()
    yield from pieces


def decode_file(data: bytes, path: str) -> Content:
    """Decodes the bytes of a saved executable.

    Raises:
      ExecutableError: they are no saved executable, one of another version, or damaged.
    """
    line, end, _ = data[:_LONGEST_LINE].partition(b"\n")
    header = _LINE.fullmatch(line + end)
    if header is None:
        cut = bool(data) and (_MAGIC.startswith(data) or (data.startswith(_MAGIC) and not end))
        problem = "is damaged: its beginning is all there is" if cut else "is no saved executable"
        raise ExecutableError(f"{path} {problem}", fix="give a file that `executable.save` wrote")
    if int(header[1]) != VERSION:
        raise ExecutableError(
            f"{path} is a saved executable of version {int(header[1])}; this ipujax reads "
            f"version {VERSION}",
            fix="save it again with this ipujax, or load it with the ipujax that saved it",
        )
    body = memoryview(data)[header.end() :]
    if hashlib.sha256(body).hexdigest() != header[2].decode():
        raise ExecutableError(
            f"{path} is damaged: a part of it is lost or was changed after it was saved",
            fix="copy it again from where it came from, or save it again",
        )
    try:
        return _decode_body(body)
    except Exception as error:  # whatever else stands where the index should be
        raise ExecutableError(
            f"{path} is not understood: its index cannot be read: {error!r:.400}",
            fix="save it again, and copy it whole",
        ) from error


def _decode_body(body: memoryview) -> Content:
    """Decodes the index and the blobs behind it."""
    start = _SIZE + int.from_bytes(body[:_SIZE], "little")
    index = json_text.parse_bounded_json(_decompress(body[_SIZE:start]))
    if not isinstance(index, dict):
        raise ValueError("it is no object")
    sizes: list[Any] = index["blobs"]
    if not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError("its blobs have impossible sizes")
    if start + sum(sizes) != len(body):
        raise ValueError(f"its blobs have {sum(sizes)} bytes, and {len(body) - start} are there")
    blobs: list[memoryview] = []
    for size in sizes:
        blobs.append(body[start : start + size])
        start += size
    return Content(index, blobs)


def _decompress(data: memoryview) -> bytes:
    """Decompresses data up to a size limit."""
    inflating = zlib.decompressobj()
    text = inflating.decompress(data, _MOST_BYTES)
    if not inflating.eof or inflating.unused_data:
        raise ValueError(f"it is cut off, or has more than {_MOST_BYTES:,} bytes")
    return text
