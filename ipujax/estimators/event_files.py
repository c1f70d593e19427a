"""Event files for TensorBoard, where tensorboardX is installed."""

from __future__ import annotations

import importlib
from typing import Any


class EventFile:
    """Scalars, texts and summaries of a folder; closed by a `with` block.

    Without tensorboardX (`pip install ipujax[tensorboard]`) nothing is written.

    Args:
      folder: where; the file is made with the first scalar.
      is_written: whether anything is; of several workers, the chief writes.
    """

    def __init__(self, folder: str, is_written: bool = True):
        self._folder = folder
        self._writer: Any = None
        self._is_there = is_written

    def scalar(self, name: str, value: float, step: int) -> None:
        """One value of a curve."""
        if (writer := self._opened()) is not None:
            writer.add_scalar(name, value, step)

    def text(self, name: str, text: str, step: int) -> None:
        """A text, shown as it is."""
        if (writer := self._opened()) is not None:
            indented = text.replace("\n", "\n    ")
            writer.add_text(name, f"    {indented}", step)

    def summary(self, message: bytes, step: int) -> None:
        """What `summary_ops.tensor_summary` gives."""
        if (writer := self._opened()) is not None:
            kind = importlib.import_module("tensorboardX.proto.summary_pb2").Summary
            writer.file_writer.add_summary(kind.FromString(message), step)

    def _opened(self) -> Any:
        if self._writer is None and self._is_there:
            try:
                self._writer = importlib.import_module("tensorboardX").SummaryWriter(self._folder)
            except ImportError:
                self._is_there = False
        return self._writer

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
