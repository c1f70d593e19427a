"""The host's side of streams: buffers that are rings of transfers, and callbacks."""

from __future__ import annotations

import abc
import dataclasses as dc
import enum
from collections.abc import Callable

import numpy as np

from ipujax.poplar.exceptions import check, index_error, stream_connection_error, type_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.graph_parts import DataStream, RemoteBuffer
from ipujax.poplar.user_lines import user_line


@dc.dataclass(eq=False)
class _Ring:
    """A buffer, 1-d, that is read or written transfer by transfer, round and round."""

    buffer: np.ndarray
    position: int = 0

    def next_transfer(self, size: int) -> np.ndarray:
        """Returns the part of the next transfer, and moves on."""
        part = self.buffer[self.position : self.position + size]
        self.position = (self.position + size) % max(self.buffer.size, 1)
        return part


class StreamCallback(abc.ABC):
    """The base class of callbacks that fill, or read, the transfers of a stream.

    Each transfer is a `fetch` and a `complete`. Nothing is fetched ahead: `prefetch`, and C++'s
    `invalidatePrefetched`, are not called.
    """

    class Result(enum.Enum):
        """The result of `prefetch`."""

        Success = 0
        NotAvailable = 1

    @abc.abstractmethod
    def prefetch(self, data: np.ndarray) -> Result:
        """Fills a transfer's array ahead of time, if possible."""

    @abc.abstractmethod
    def fetch(self, data: np.ndarray) -> None:
        """Fills a transfer's array, or reads it."""

    @abc.abstractmethod
    def complete(self) -> None:
        """Is called after the transfer."""

    def __call__(self, data: np.ndarray) -> None:
        """Runs one transfer: `fetch`, then `complete`."""
        self.fetch(data)
        self.complete()


class StreamConnections:
    """The arrays and callbacks that the host has connected with the streams of a graph."""

    def __init__(self, graph: Graph):
        self._graph = graph
        self._connected: dict[str, _Ring | Callable[[np.ndarray], None]] = {}

    def connect(self, handle: str, begin: np.ndarray) -> None:
        """Connects a stream with an array that holds one or several transfers, used in place."""
        stream = self._require_stream(handle)
        array = check.require_instance(begin, np.ndarray, f"the buffer of stream '{handle}'")
        if array.dtype != stream.type.dtype:
            raise type_error(
                f"stream '{handle}' is {stream.type.dtype}, and the buffer {array.dtype}",
                where=user_line(),
            )
        if not array.flags.c_contiguous or (not stream.to_device and not array.flags.writeable):
            raise stream_connection_error(
                f"the buffer of stream '{handle}' is not contiguous, or cannot be written",
                where=user_line(),
            )
        if not array.size or array.size % max(stream.size, 1):
            raise stream_connection_error(
                f"stream '{handle}' moves {stream.size} elements at a time, and the buffer has "
                f"{array.size}",
                where=user_line(),
                fix="give whole transfers",
            )
        self._connected[handle] = _Ring(array.reshape(-1))

    def connect_callback(self, handle: str, callback: Callable[[np.ndarray], None]) -> None:
        """Connects a stream with a function of each transfer: it fills, or reads, the array."""
        self._require_stream(handle)
        self._connected[handle] = check.require_function(callback, "callback")

    def require_connected(self, stream: DataStream, source_line: str) -> None:
        """Raises an error for a stream that is not connected."""
        if stream.name not in self._connected:
            raise stream_connection_error(
                f"stream '{stream.name}' is not connected",
                where=source_line,
                fix=f'call engine.connectStream("{stream.name}", array) before run',
            )

    @staticmethod
    def require_rows(buffer: RemoteBuffer, source_line: str, offsets: np.ndarray) -> None:
        """Raises an error for indices of rows that a remote buffer does not have."""
        missing_rows = [int(row) for row in offsets if not 0 <= row < buffer.repeats]
        if missing_rows:
            raise index_error(
                f"row {missing_rows[0]} of remote buffer '{buffer.handle}'",
                where=source_line,
                fix=f"it has rows 0 to {buffer.repeats - 1}",
            )

    def read_transfer(self, handle: str) -> np.ndarray:
        """Returns the next transfer to the device, from the stream's array or callback."""
        stream, source = self._graph.streams[handle], self._connected[handle]
        if isinstance(source, _Ring):
            return source.next_transfer(stream.size).copy()
        values = np.zeros(stream.size, stream.type.dtype)
        source(values)
        return values

    def write_transfer(self, handle: str, values: np.ndarray) -> None:
        """Writes a transfer from the device to the stream's array or callback."""
        destination = self._connected[handle]
        if isinstance(destination, _Ring):
            destination.next_transfer(self._graph.streams[handle].size)[...] = values
        else:
            destination(np.array(values))

    def _require_stream(self, handle: str) -> DataStream:
        if handle not in self._graph.streams:
            raise stream_connection_error(
                f"the graph has no stream '{handle}'",
                where=user_line(),
                fix=f"its streams are: {', '.join(self._graph.streams) or 'none'}",
            )
        return self._graph.streams[handle]
