"""The part of a graph for the host: streams, and remote buffers in streaming memory."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from ipujax.poplar.element_types import Type, require_type
from ipujax.poplar.exceptions import check, stream_connection_error
from ipujax.poplar.graph_choices import ReplicatedStreamMode
from ipujax.poplar.graph_parts import DataStream, RemoteBuffer
from ipujax.poplar.user_lines import user_line
from ipujax.system import get_logger


@check.guard
class StreamsOfGraph:
    """The part of a graph that holds its streams and remote buffers."""

    def __init__(self) -> None:
        self.streams: dict[str, DataStream] = {}
        self.remote_buffers: dict[str, RemoteBuffer] = {}

    def addHostToDeviceFIFO(
        self,
        handle: str,
        elementType: Type,
        numElements: int,
        replicatedMode: ReplicatedStreamMode = ReplicatedStreamMode.REPLICATE,
        options: Mapping[str, str] | None = None,
    ) -> DataStream:
        """Adds a stream from the host of so many elements a transfer.

        Args:
          handle: its name.
          elementType: the element type.
          numElements: elements of a transfer.
          replicatedMode: what replicas read; a graph is one.
          options: those of C++, which change nothing here and are noted in the log.
        """
        check.require_instance(replicatedMode, ReplicatedStreamMode, "replicatedMode")
        for name in options or {}:
            _log_option(name)
        return self._add_stream(handle, elementType, numElements, to_device=True)

    def addDeviceToHostFIFO(
        self,
        handle: str,
        elementType: Type,
        numElements: int,
        options: Mapping[str, str] | None = None,
    ) -> DataStream:
        """Adds a stream to the host of so many elements a transfer; notes options in the log."""
        for name in options or {}:
            _log_option(name)
        return self._add_stream(handle, elementType, numElements, to_device=False)

    def _add_stream(self, name: str, type: Type, size: int, *, to_device: bool) -> DataStream:
        if name in self.streams:
            raise stream_connection_error(
                f"there is a stream '{name}' already", where=user_line(), fix="name it otherwise"
            )
        size = check.require_integer(size, "numElements", at_least=0)
        stream = DataStream(name, require_type(type, "elementType"), size, to_device)
        self.streams[name] = stream
        return stream

    def addRemoteBuffer(
        self,
        handle: str,
        elementType: Type,
        numElements: int,
        repeats: int = 1,
        rearrangeOnHost: bool = False,
        optimiseMemory: bool = False,
    ) -> RemoteBuffer:
        """Adds rows of elements in streaming memory, that copies read and write.

        Args:
          handle: its name, for `Engine.copyToRemoteBuffer` and `copyFromRemoteBuffer`.
          elementType: the element type.
          numElements: elements of a row.
          repeats: how many rows there are.
          rearrangeOnHost: where data is rearranged; the modelled cost is the same.
          optimiseMemory: whether that is to save memory; the modelled bytes are the same.
        """
        check.require_flag(rearrangeOnHost, "rearrangeOnHost")
        check.require_flag(optimiseMemory, "optimiseMemory")
        if handle in self.remote_buffers:
            raise stream_connection_error(
                f"there is a remote buffer '{handle}' already",
                where=user_line(),
                fix="name it otherwise",
            )
        buffer = RemoteBuffer(
            check.require_instance(handle, str, "handle"),
            len(self.remote_buffers),
            require_type(elementType, "elementType"),
            check.require_integer(numElements, "numElements", at_least=1),
            check.require_integer(repeats, "repeats", at_least=1),
        )
        self.remote_buffers[handle] = buffer
        return buffer


@functools.cache
def _log_option(name: str) -> None:
    get_logger().info("option %r of Poplar's streams changes nothing here", name)
