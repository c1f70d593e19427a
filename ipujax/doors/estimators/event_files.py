"""Event files for TensorBoard, where tensorboardX is installed."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import time
import types
from typing import Any

from ipujax.system import get_logger

_FLUSH_SECONDS = 10.0  # the delay with which TensorBoard shows a running training

_numbers = itertools.count()


class EventFile:
    """An event file of scalars, texts and summaries in a folder; closed by a `with` block.

    Without tensorboardX (`pip install ipujax[tensorboard]`) nothing is written. Where the folder
    cannot be written, or the disk is full, a warning says so and the training goes on without.

    Args:
      folder: the folder; the file is made with the first value.
      is_written: whether anything is written; of several workers, only the chief writes.
    """

    def __init__(self, folder: str, is_written: bool = True):
        self._folder = folder
        # tensorboardX's SummaryWriter writes in a thread and another process's queue, which wait
        # for ever once the disk is full; the EventsWriter that it uses does neither.
        self._writer: Any = None
        self._flushed = 0.0
        self._is_there = is_written

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """Writes one value of a curve."""
        if self._can_write():
            self._write_event(_import_tensorboard_module("summary").scalar(name, value), step)

    def write_text_event(self, name: str, text: str, step: int) -> None:
        """Writes a text, which TensorBoard shows verbatim."""
        if self._can_write():
            indented = text.replace("\n", "\n    ")
            self._write_event(
                _import_tensorboard_module("summary").text(name, f"    {indented}"), step
            )

    def write_summary_message(self, message: bytes, step: int) -> None:
        """Writes the bytes that `summary_ops.tensor_summary` gives."""
        if self._can_write():
            summary_class = _import_tensorboard_module("proto.summary_pb2").Summary
            self._write_event(summary_class.FromString(message), step)

    def _can_write(self) -> bool:
        """Returns whether the file can be written; opens it for the first value."""
        if self._writer is None and self._is_there:
            try:
                os.makedirs(self._folder, exist_ok=True)
                events = _import_tensorboard_module("event_file_writer")
                # tensorboardX names files by the second, in which two trainings may begin.
                suffix = f".{os.getpid()}.{next(_numbers)}"
                self._writer = events.EventsWriter(os.path.join(self._folder, "events"), suffix)
            except ImportError:
                self._is_there = False
            except OSError as error:
                self._give_up(error)
        return self._writer is not None

    def _write_event(self, summary: Any, step: int) -> None:
        event_class = _import_tensorboard_module("proto.event_pb2").Event
        try:
            self._writer.write_event(event_class(wall_time=time.time(), step=step, summary=summary))
            if time.monotonic() - self._flushed > _FLUSH_SECONDS:
                self._writer.flush()
                self._flushed = time.monotonic()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Warns that nothing more is written, and stops writing."""
        self._is_there = False
        get_logger().warning(
            "no event files for TensorBoard in %s, and the training goes on without: %s; make room "
            "there, or give a folder that can be written",
            *(self._folder, error.strerror or error),
        )
        with contextlib.suppress(OSError):
            self._close_writer()

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            writer.close()
        except OSError:
            with contextlib.suppress(OSError):
                writer._py_recordio_writer.close()  # the file; the layers above fail first
            raise

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._close_writer()
        except OSError as error:
            self._give_up(error)


def _import_tensorboard_module(name: str) -> types.ModuleType:
    """Returns a module of tensorboardX."""
    return importlib.import_module(f"tensorboardX.{name}")
