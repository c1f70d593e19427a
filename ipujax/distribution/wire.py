"""Values on their way between processes, carried by `jax.experimental.transfer`.

Whoever has a value offers it under a number; whoever needs it asks its owner for that number, in
either order. Nothing waits here. The numbers follow from the program's key: nobody else knows them.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils, transfer

from ipujax.distribution.join import here
from ipujax.distribution.messages import make_key, number_of, read_key

_LONGEST_ADDRESS = 256
_SOCKETS = 4
_LOOPBACK = "127.0.0.1"


class Wire:
    """The connections of this process with the others.

    Attributes:
      key: the program's, which all of its processes have.
    """

    def __init__(self) -> None:
        self.key = read_key() or _agree_on_key()
        address = _own_address()
        client = jax.local_devices()[0].client
        self._server = transfer.start_transfer_server(
            client, f"{address}:0", [f"{address}:0"] * _SOCKETS
        )
        text = self._server.address().encode().ljust(_LONGEST_ADDRESS)
        rows = multihost_utils.process_allgather(np.frombuffer(text, np.uint8))
        self._connections = [
            self._server.connect(bytes(row).decode().strip()) for row in np.asarray(rows)
        ]

    def offer(self, key: tuple[object, ...], arrays: Sequence[jax.Array]) -> None:
        """Has arrays of one device ready for whoever asks for their key, once."""
        if some := [array for array in arrays if array.size]:
            self._server.await_pull(number_of(self.key, key), some)

    def ask(
        self, process: int, key: tuple[object, ...], structs: Sequence[jax.ShapeDtypeStruct]
    ) -> list[jax.Array]:
        """What a process offers, as arrays that are ready when it has come.

        One without elements does not travel: it would never come.
        """
        some = [struct for struct in structs if struct.size]
        come = iter(self._connections[process].pull(number_of(self.key, key), some))
        return [next(come) if struct.size else _empty(struct) for struct in structs]


@functools.cache
def wire() -> Wire:
    """The wire of this process; all processes have to ask for theirs before one is used."""
    return Wire()


def _agree_on_key() -> bytes:
    """The key that the first process makes, and JAX tells the others; all have to ask together."""
    own = np.frombuffer(bytes.fromhex(make_key()), np.uint8)
    return bytes(np.asarray(multihost_utils.process_allgather(own)).reshape(-1, len(own))[0])


def _empty(struct: jax.ShapeDtypeStruct) -> jax.Array:
    return jax.device_put(np.empty(struct.shape, struct.dtype), struct.sharding)


def _own_address() -> str:
    """Where other processes find this one: as near as the place where they have met."""
    meeting, _, port = here().coordinator.rpartition(":")
    if meeting == _LOOPBACK:
        return _LOOPBACK
    if not meeting:
        return socket.gethostbyname(socket.gethostname())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((meeting, int(port)))  # sends nothing: it looks for the way there
        return probe.getsockname()[0]
