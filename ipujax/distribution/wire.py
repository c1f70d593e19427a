"""Transfers arrays between processes by `jax.experimental.transfer`.

A process offers arrays under a number, and another one asks it for that number, in either order.
Nothing waits here. The numbers follow from the program's key, so that others do not know them.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils, transfer

from ipujax.distribution.messages import compute_offer_number, make_program_key, read_program_key
from ipujax.ground import current_instance

_LONGEST_ADDRESS = 256
_SOCKETS = 4
_LOOPBACK = "127.0.0.1"


class Wire:
    """The connections of this process to the others.

    Attributes:
      key: the program's key, which all of its processes have.
    """

    def __init__(self) -> None:
        self.key = read_program_key() or _agree_on_key()
        address = _local_address()
        client = jax.local_devices()[0].client
        self._server = transfer.start_transfer_server(
            client, f"{address}:0", [f"{address}:0"] * _SOCKETS
        )
        text = self._server.address().encode().ljust(_LONGEST_ADDRESS)
        rows = multihost_utils.process_allgather(np.frombuffer(text, np.uint8))
        self._connections = [
            self._server.connect(bytes(row).decode().strip()) for row in np.asarray(rows)
        ]

    def offer_arrays(self, key: tuple[object, ...], arrays: Sequence[jax.Array]) -> None:
        """Offers arrays of one device to the process that asks for their key, once."""
        if nonempty_arrays := [array for array in arrays if array.size]:
            self._server.await_pull(compute_offer_number(self.key, key), nonempty_arrays)

    def request_arrays(
        self, process: int, key: tuple[object, ...], structs: Sequence[jax.ShapeDtypeStruct]
    ) -> list[jax.Array]:
        """Requests the arrays that a process offers; they become ready when they have come.

        Arrays without elements are made here: transfers of them would never end.
        """
        nonempty_structs = [struct for struct in structs if struct.size]
        pulled_arrays = iter(
            self._connections[process].pull(compute_offer_number(self.key, key), nonempty_structs)
        )
        return [
            next(pulled_arrays) if struct.size else _make_empty_array(struct) for struct in structs
        ]


@functools.cache
def get_wire() -> Wire:
    """Returns the wire of this process; all processes have to call it before one is used."""
    return Wire()


def _agree_on_key() -> bytes:
    """Returns the key that the first process makes; all have to call it together."""
    local_key = np.frombuffer(bytes.fromhex(make_program_key()), np.uint8)
    return bytes(
        np.asarray(multihost_utils.process_allgather(local_key)).reshape(-1, len(local_key))[0]
    )


def _make_empty_array(struct: jax.ShapeDtypeStruct) -> jax.Array:
    return jax.device_put(np.empty(struct.shape, struct.dtype), struct.sharding)


def _local_address() -> str:
    """Returns the address at which other processes reach this one."""
    meeting, _, port = current_instance().coordinator.rpartition(":")
    if meeting == _LOOPBACK:
        return _LOOPBACK
    if not meeting:
        return socket.gethostbyname(socket.gethostname())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((meeting, int(port)))  # sends nothing: it looks for the way there
        return probe.getsockname()[0]
