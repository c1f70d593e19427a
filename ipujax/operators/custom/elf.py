"""Checks the file of a shared library: loading a truncated one would crash the process.

Source: System V ABI, "Object files" and "Program loading"; the machine's own numbers are those of
the running Python.
"""

from __future__ import annotations

import mmap
import struct
import sys

_MAGIC = b"\x7fELF"
_SHARED = 3  # ET_DYN
_LOAD = 1  # PT_LOAD
_NO_BITS = 8  # SHT_NOBITS: takes no place in the file
# After the 16 bytes that say what kind of file it is: type, machine, (version, entry), the places
# of both tables, (flags, header's size), and size and number of the entries of both.
_HEADER = struct.Struct("<HH4x8xQQ4x2xHHHH")
_SEGMENT = struct.Struct("<I4xQ16xQ")  # type, (flags), offset, (addresses), size in the file
_SECTION = struct.Struct("<4xI16xQQ")  # (name), type, (flags, address), offset, size


def find_library_fault(path: str) -> str:
    """Describes the fault of a library's file, or returns ''; for 64-bit little-endian systems."""
    with open(sys.executable or path, "rb") as file:
        python = file.read(20)
    if python[:6] != _MAGIC + b"\2\1":
        return ""  # another kind of system, whose loader must look after it
    with open(path, "rb") as file:
        if file.read(4) != _MAGIC:
            return "it is no ELF file"
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _find_elf_fault(data, python)


def _find_elf_fault(data: mmap.mmap, python: bytes) -> str:
    if len(data) < 16 + _HEADER.size:
        return "its header is cut off"
    kind, machine, segments_at, sections_at, *sizes = _HEADER.unpack_from(data, 16)
    if data[4:6] != python[4:6] or machine != int.from_bytes(python[18:20], "little"):
        return "it was built for another machine"
    if kind != _SHARED:
        return "it is no shared library"
    segment_size, segments, section_size, sections = sizes
    segments_end = segments_at + segment_size * segments
    sections_end = sections_at + section_size * sections
    ends = [segments_end, sections_end]
    if max(ends) <= len(data):
        for entry_offset in range(segments_at, segments_end, segment_size or 1):
            kind, offset, size = _SEGMENT.unpack_from(data, entry_offset)
            ends.append(offset + size if kind == _LOAD else 0)
        for entry_offset in range(sections_at, sections_end, section_size or 1):
            kind, offset, size = _SECTION.unpack_from(data, entry_offset)
            ends.append(offset + size if kind != _NO_BITS else 0)
    needed_size = max(ends)
    if needed_size > len(data):
        return f"it is cut off: it has {len(data)} bytes of at least {needed_size}"
    return ""
