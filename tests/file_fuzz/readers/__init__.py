"""The readers that are fuzzed, by their names; each module is imported when it is asked for."""

from __future__ import annotations

import importlib

from tests.file_fuzz.readers.reader import Reader

_PLACES = {
    "executable": ("executables", "READER"),
    "checkpoint": ("checkpoints", "READER"),
    "orbax": ("checkpoints", "ORBAX"),
    "report": ("texts", "REPORT"),
    "schedule": ("texts", "SCHEDULE"),
    "attachment": ("texts", "PROCESS"),
    "onnx": ("models", "ONNX"),
    "poptorch": ("models", "POPTORCH"),
}
NAMES = tuple(_PLACES)
"""All readers."""


def reader(name: str) -> Reader:
    """The reader of a name."""
    module, variable = _PLACES[name]
    return getattr(importlib.import_module(f"tests.file_fuzz.readers.{module}"), variable)
