"""Sums, gathers and broadcasts of host values over the processes of a program.

All processes have to call them, in the same order, with arrays of the same shapes and dtypes. What
they give is on the host, NumPy arrays; with one process, what was given. Processes to which the
IPUs of a replica are dealt have the same values, and count as one in sums and gathers.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ipujax.distribution.join import instance_count
from ipujax.distribution.meeting import connect, connect_processes
from ipujax.driver import tracing
from ipujax.errors import DistributionError
from lowering import jaxpr

Tree = Any
_PROCESSES = "processes"


def summed(tree: Tree) -> Tree:
    """The sum over all processes, leaf by leaf."""
    if instance_count() == 1:
        return jax.tree.map(np.asarray, tree)
    mesh = Mesh(np.array(_first_devices()), (_PROCESSES,))
    connect([mesh])
    rows = jax.tree.map(lambda leaf: np.asarray(leaf)[None], tree)
    spec = PartitionSpec(_PROCESSES)
    whole = multihost_utils.host_local_array_to_global_array(rows, mesh, spec)
    totals = jax.jit(_over_processes, out_shardings=NamedSharding(mesh, PartitionSpec()))(whole)
    return jax.tree.map(lambda leaf: np.asarray(leaf.addressable_data(0)), totals)


def averaged(tree: Tree) -> Tree:
    """The mean over all processes, leaf by leaf; of integers, in the float type of JAX's."""
    return jax.tree.map(lambda total: total / _like(total, instance_count()), summed(tree))


def gathered(array: Any) -> np.ndarray[Any, Any]:
    """The arrays of all processes, one after the other along the first axis.

    Args:
      array: `[any, ...]`; the first axis may differ from process to process.
    """
    own = np.asarray(array)
    if instance_count() == 1:
        return own
    connect_processes()
    # JAX would make 64 bits 32.
    sent = own if own.dtype.itemsize < 8 else np.ascontiguousarray(own).view(np.uint8)
    lengths = multihost_utils.process_allgather(np.int32(len(sent)))
    padding = [(0, int(lengths.max()) - len(sent)), *[(0, 0)] * (own.ndim - 1)]
    rows = multihost_utils.process_allgather(np.pad(sent, padding))
    parts = [row[:length] for row, length in zip(rows, lengths, strict=True)]
    return np.concatenate(parts).view(own.dtype)


def sent_by(root: int, tree: Tree) -> Tree:
    """What one process has, on all of them."""
    if jax.process_count() > 1:
        connect_processes()
    return multihost_utils.broadcast_one_to_all(tree, is_source=jax.process_index() == root)


def is_traced(tree: Tree, what: str) -> bool:
    """Whether values are those of a program that is being traced.

    Raises:
      DistributionError: (a `ValueError`) they are traced for something else than `ipu.compile`,
        where one process cannot reach the others.
    """
    if not any(map(jaxpr.is_tracer, jax.tree.leaves(tree))):
        return False
    if tracing.current() is None and instance_count() > 1:
        raise DistributionError(
            f"{what} was called inside jax.jit, or another transformation of JAX, where it would "
            "not reach the other processes",
            fix="call it inside a function for ipu.compile, or with arrays outside of both",
        )
    return True


def _over_processes(tree: Tree) -> Tree:
    return jax.tree.map(lambda leaf: jnp.sum(leaf, 0, leaf.dtype), tree)


def _first_devices() -> list[Any]:
    """One device of each process, in their order."""
    first: dict[int, Any] = {}
    for device in jax.devices():
        first.setdefault(device.process_index, device)
    return [device for _, device in sorted(first.items())]


def _like(total: np.ndarray[Any, Any], number: int) -> Any:
    is_inexact = jnp.issubdtype(total.dtype, jnp.inexact)
    return np.asarray(number, total.dtype if is_inexact else jnp.result_type(float))
