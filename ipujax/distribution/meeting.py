"""Connects the devices of processes before they run anything.

Gloo makes connections in the first collective of some devices, and gives a peer 30 seconds for it.
On existing connections it waits as long as the peer lives. So processes connect before they run
anything, after waiting for one another as long as it takes.
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


def connect_meshes(meshes: Iterable[Mesh]) -> None:
    """Connects the devices of each mesh, for collectives on all of them.

    All processes have to call it, for the same meshes in the same order.
    """
    for mesh in meshes:
        _connect_mesh(mesh)


@functools.cache
def connect_processes() -> None:
    """Connects each device with those of the same position in other processes."""
    devices_by_process = np.array(jax.devices()).reshape(jax.process_count(), -1)
    _connect_mesh(Mesh(devices_by_process, ("processes", "places")))


@functools.cache
def _connect_mesh(mesh: Mesh) -> None:
    """Connects devices along the first axis."""
    _wait_for_all_processes()
    axis, *_ = mesh.axis_names
    sharding, count = NamedSharding(mesh, PartitionSpec(axis)), mesh.shape[axis]
    zeros = jax.make_array_from_callback((count,), sharding, lambda _: np.zeros(1, np.float32))
    add = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, PartitionSpec()))
    with _silence_stdout():
        jax.block_until_ready(add(zeros))


def _wait_for_all_processes() -> None:
    jaxpr.wait_for_peers(f"ipujax/{next(_meetings)}", _LONGEST_SECONDS)


@contextlib.contextmanager
def _silence_stdout() -> Generator[None]:
    """Discards what gloo writes to standard output, which is for the program, within the block."""
    try:
        stdout_copy = os.dup(1)
    except OSError:  # the program has closed it
        yield
        return
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, 1)
    try:
        yield
    finally:
        os.dup2(stdout_copy, 1)
        os.close(stdout_copy)
        os.close(null_device)
