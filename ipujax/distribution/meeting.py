"""Connecting processes when all of them are there.

Where gloo makes connections, which JAX has it do in the first collective of some devices, it gives
a peer 30 seconds. On those that it has made it waits as long as the peer lives. So processes
connect before they run anything, having waited for one another as long as it takes.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Generator, Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lowering import jaxpr

_LONGEST_SECONDS = 24 * 3600.0
_meetings = itertools.count()


def connect(meshes: Iterable[Mesh]) -> None:
    """Connects the devices of each mesh, for collectives on all of them.

    All processes have to call it, for the same meshes in the same order.
    """
    for mesh in meshes:
        _connect(mesh)


@functools.cache
def connect_processes() -> None:
    """The same for what `multihost_utils` does: each device with those in its place elsewhere."""
    of_processes = np.array(jax.devices()).reshape(jax.process_count(), -1)
    _connect(Mesh(of_processes, ("processes", "places")))


@functools.cache
def _connect(mesh: Mesh) -> None:
    """Connects devices along the first axis."""
    _wait_for_all()
    axis, *_ = mesh.axis_names
    spread, count = NamedSharding(mesh, PartitionSpec(axis)), mesh.shape[axis]
    zeros = jax.make_array_from_callback((count,), spread, lambda _: np.zeros(1, np.float32))
    add = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, PartitionSpec()))
    with _quiet():
        jax.block_until_ready(add(zeros))


def _wait_for_all() -> None:
    jaxpr.wait_for_peers(f"ipujax/{next(_meetings)}", _LONGEST_SECONDS)


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Keeps from standard output, which is the program's, what gloo writes where it connects."""
    try:
        own = os.dup(1)
    except OSError:  # the program has closed it
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(own, 1)
        os.close(own)
        os.close(nowhere)
