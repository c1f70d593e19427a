"""Sums, gathers and broadcasts host values over the processes of a program.

All processes have to call them, in the same order, with arrays of the same shapes and dtypes. What
they return are NumPy arrays on the host; with one process, the arguments. Processes to which the
IPUs of a replica are dealt have the same values, and count as one in sums and gathers.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ipujax.distribution.meeting import connect_meshes, connect_processes
from ipujax.ground import DistributionError, count_replica_groups
from ipujax.host import trace_frames
from lowering import jaxpr

Tree = Any
_PROCESSES = "processes"


def sum_over_processes(tree: Tree) -> Tree:
    """Returns the sum over all processes, leaf by leaf."""
    if count_replica_groups() == 1:
        return jax.tree.map(np.asarray, tree)
    mesh = Mesh(np.array(_first_device_of_each_process()), (_PROCESSES,))
    connect_meshes([mesh])
    rows = jax.tree.map(lambda leaf: np.asarray(leaf)[None], tree)
    spec = PartitionSpec(_PROCESSES)
    global_tree = multihost_utils.host_local_array_to_global_array(rows, mesh, spec)
    totals = jax.jit(_sum_first_axis, out_shardings=NamedSharding(mesh, PartitionSpec()))(
        global_tree
    )
    return jax.tree.map(lambda leaf: np.asarray(leaf.addressable_data(0)), totals)


def average_over_processes(tree: Tree) -> Tree:
    """Returns the mean over all processes, leaf by leaf; of integers, in JAX's float type."""
    return jax.tree.map(
        lambda total: total / _convert_count_to_dtype_of(total, count_replica_groups()),
        sum_over_processes(tree),
    )


def concatenate_over_processes(array: object) -> np.ndarray:
    """Concatenates the arrays of all processes along the first axis.

    Args:
      array: `[any, ...]`; the first axis may differ from process to process.
    """
    local_array = np.asarray(array)
    if count_replica_groups() == 1:
        return local_array
    connect_processes()
    # JAX would convert numbers of 64 bits to 32 bits.
    sent_array = (
        local_array
        if local_array.dtype.itemsize < 8
        else np.ascontiguousarray(local_array).view(np.uint8)
    )
    lengths = multihost_utils.process_allgather(np.int32(len(sent_array)))
    padding = [(0, int(lengths.max()) - len(sent_array)), *[(0, 0)] * (local_array.ndim - 1)]
    rows = multihost_utils.process_allgather(np.pad(sent_array, padding))
    parts = [row[:length] for row, length in zip(rows, lengths, strict=True)]
    return np.concatenate(parts).view(local_array.dtype)


def broadcast_from_process(root: int, tree: Tree) -> Tree:
    """Returns the tree of one process, on all of them."""
    if jax.process_count() > 1:
        connect_processes()
    return multihost_utils.broadcast_one_to_all(tree, is_source=jax.process_index() == root)


def are_values_traced(tree: Tree, function_name: str) -> bool:
    """Returns whether values are those of a program that is being traced.

    Raises:
      DistributionError: (a `ValueError`) they are traced for something else than `ipu.compile`,
        where one process cannot reach the others.
    """
    if not any(map(jaxpr.is_tracer, jax.tree.leaves(tree))):
        return False
    if trace_frames.current_trace_frame() is None and count_replica_groups() > 1:
        raise DistributionError(
            f"{function_name} was called inside jax.jit, or another transformation of JAX, where "
            "it would not reach the other processes",
            fix="call it inside a function for ipu.compile, or with arrays outside of both",
        )
    return True


def _sum_first_axis(tree: Tree) -> Tree:
    return jax.tree.map(lambda leaf: jnp.sum(leaf, 0, leaf.dtype), tree)


def _first_device_of_each_process() -> list[Any]:
    """Returns one device of each process, in their order."""
    device_of_process: dict[int, object] = {}
    for device in jax.devices():
        device_of_process.setdefault(device.process_index, device)
    return [device for _, device in sorted(device_of_process.items())]


def _convert_count_to_dtype_of(total: np.ndarray, number: int) -> Any:
    is_inexact = jnp.issubdtype(total.dtype, jnp.inexact)
    return np.asarray(number, total.dtype if is_inexact else jnp.result_type(float))
