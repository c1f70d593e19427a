"""Event files for TensorBoard, where tensorboardX is installed."""

from __future__ import annotations

import importlib
from typing import Any


class EventFile:
    """Scalars of a folder; without tensorboardX (`pip install ipujax[tensorboard]`) nothing.

    Args:
      folder: where; the file is made with the first scalar.
    """

    def __init__(self, folder: str):
        self._folder = folder
        self._writer: Any = None
        self._is_there = True

    def scalar(self, name: str, value: float, step: int) -> None:
        """One value of a curve."""
        if self._writer is None and self._is_there:
            try:
                self._writer = importlib.import_module("tensorboardX").SummaryWriter(self._folder)
            except ImportError:
                self._is_there = False
        if self._writer is not None:
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Writes what is left."""
        if self._writer is not None:
            self._writer.close()
