"""debug.cbor: the operations of a report with their lines, as Poplar's debug information.

Its content is what PopART's tests read of Poplar's own (graphcore/popart, debug_info_test.py): a
list of contexts, whose names, files and functions are places in a table of texts. Written as CBOR
(RFC 8949). How Graphcore's tools read it was not tried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ipujax.ground import InternalError, files
from lowering import parse_source_line

if TYPE_CHECKING:
    from ipujax.report.report import Report

_Value: TypeAlias = "int | str | Sequence[_Value] | Mapping[str, _Value]"
_FUNCTION = re.compile(r" \((.*)\)$")
_LAYER = "ipujax"


def write_debug_info(report: Report, path: Path) -> None:
    """Writes the debug information of a report, as CBOR.

    Raises:
      OSError: a file that cannot be written.
    """
    with files.replace_file(path) as file:
        file.write(encode_cbor(build_debug_info(report)))


def build_debug_info(report: Report) -> dict[str, _Value]:
    """Builds a context for each operation, below one for each named scope around it.

    Returns:
      `contexts`, each with `id` from 1, `parentId` (0: none), `layer`, `name`, `category` ("scope"
      or "op"), and for operations `location` (`fileName`, `functionName`, `lineNumber`) and `ipu`.
      Names, files and functions are places in `stringTable`.
    """
    texts: dict[str, int] = {}
    ids: dict[tuple[str, ...], int] = {}
    contexts: list[_Value] = []

    def place_of(text: str) -> int:
        return texts.setdefault(text, len(texts))

    def add_context(name: str, parent: int, category: str, others: Mapping[str, _Value]) -> int:
        id = len(contexts) + 1
        named = {"id": id, "parentId": parent, "layer": _LAYER, "name": place_of(name)}
        contexts.append({**named, "category": category, **others})
        return id

    for operation in report.operations:
        parent, scopes = 0, tuple(filter(None, operation.scope.split("/")))
        for end in range(1, len(scopes) + 1):
            scope = scopes[:end]
            if scope not in ids:
                ids[scope] = add_context(scope[-1], parent, "scope", {})
            parent = ids[scope]
        others: dict[str, _Value] = {"ipu": operation.ipu}
        parsed, function = parse_source_line(operation.origin), _FUNCTION.search(operation.origin)
        if parsed is not None:
            others["location"] = {
                "fileName": place_of(parsed[0]),
                "functionName": place_of(function[1] if function else ""),
                "lineNumber": parsed[1],
            }
        add_context(operation.name, parent, "op", others)
    return {"contexts": contexts, "stringTable": list(texts)}


def encode_cbor(value: _Value) -> bytes:
    """Encodes natural numbers, texts, lists and mappings of texts as CBOR."""
    if isinstance(value, int):
        return _encode_head(0, value)
    if isinstance(value, str):
        encoded = value.encode("utf-8", "backslashreplace")
        return _encode_head(3, len(encoded)) + encoded
    if isinstance(value, Mapping):
        items = [part for key, item in value.items() for part in (key, item)]
        return _encode_head(5, len(value)) + b"".join(map(encode_cbor, items))
    return _encode_head(4, len(value)) + b"".join(map(encode_cbor, value))


def _encode_head(kind: int, number: int) -> bytes:
    """Encodes the kind of a value, and its number or length, in as few bytes as CBOR allows."""
    if 0 <= number < 24:
        return bytes([kind << 5 | number])
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if 0 <= number < 256**size:
            return bytes([kind << 5 | code]) + number.to_bytes(size, "big")
    raise InternalError(f"{number} is no number of debug information")
