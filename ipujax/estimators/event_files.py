"""Event files for TensorBoard, where tensorboardX is installed."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import time
from typing import Any

from ipujax.system.log import get_logger

_FLUSH_SECONDS = 10.0  # who watches a training sees what it wrote so long ago

_numbers = itertools.count()


class EventFile:
    """Scalars, texts and summaries of a folder; closed by a `with` block.

    Without tensorboardX (`pip install ipujax[tensorboard]`) nothing is written. Where the folder
    cannot be written, or the disk is full, a warning says so and the training goes on without.

    Args:
      folder: where; the file is made with the first scalar.
      is_written: whether anything is; of several workers, the chief writes.
    """

    def __init__(self, folder: str, is_written: bool = True):
        self._folder = folder
        # tensorboardX's SummaryWriter writes in a thread and another process's queue, which wait
        # for ever once the disk is full; what is below it does neither.
        self._writer: Any = None
        self._flushed = 0.0
        self._is_there = is_written

    def scalar(self, name: str, value: float, step: int) -> None:
        """One value of a curve."""
        if self._can_write():
            self._write(_tensorboard("summary").scalar(name, value), step)

    def text(self, name: str, text: str, step: int) -> None:
        """A text, shown as it is."""
        if self._can_write():
            indented = text.replace("\n", "\n    ")
            self._write(_tensorboard("summary").text(name, f"    {indented}"), step)

    def summary(self, message: bytes, step: int) -> None:
        """What `summary_ops.tensor_summary` gives."""
        if self._can_write():
            kind = _tensorboard("proto.summary_pb2").Summary
            self._write(kind.FromString(message), step)

    def _can_write(self) -> bool:
        """Whether there is a file, which is made with the first value."""
        if self._writer is None and self._is_there:
            try:
                os.makedirs(self._folder, exist_ok=True)
                events = _tensorboard("event_file_writer")
                # Its own names are those of one second, in which two trainings may begin.
                suffix = f".{os.getpid()}.{next(_numbers)}"
                self._writer = events.EventsWriter(os.path.join(self._folder, "events"), suffix)
            except ImportError:
                self._is_there = False
            except OSError as error:
                self._give_up(error)
        return self._writer is not None

    def _write(self, summary: Any, step: int) -> None:
        event = _tensorboard("proto.event_pb2").Event
        try:
            self._writer.write_event(event(wall_time=time.time(), step=step, summary=summary))
            if time.monotonic() - self._flushed > _FLUSH_SECONDS:
                self._writer.flush()
                self._flushed = time.monotonic()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Says that nothing more is written, and writes nothing more."""
        self._is_there = False
        get_logger().warning(
            "no event files for TensorBoard in %s, and the training goes on without: %s; make room "
            "there, or give a folder that can be written",
            *(self._folder, error.strerror or error),
        )
        with contextlib.suppress(OSError):
            self._close()

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            writer.close()
        except OSError:
            with contextlib.suppress(OSError):
                writer._py_recordio_writer.close()  # the file; what is above it fails before that
            raise

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._close()
        except OSError as error:
            self._give_up(error)


def _tensorboard(name: str) -> Any:
    """A module of tensorboardX."""
    return importlib.import_module(f"tensorboardX.{name}")
