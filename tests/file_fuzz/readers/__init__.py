"""The readers that are fuzzed, by their names; each module is imported when it is asked for."""

from __future__ import annotations

import importlib

from tests.file_fuzz.readers.reader import Reader

_MODULES = {
    "executable": "executables",
}
NAMES = tuple(_MODULES)
"""All readers."""


def reader(name: str) -> Reader:
    """The reader of a name."""
    return importlib.import_module(f"tests.file_fuzz.readers.{_MODULES[name]}").READER
