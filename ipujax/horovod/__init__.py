"""Horovod's functions, as far as the original has them; a rank is a process that `ipurun` starts.

Each works with arrays on the host, where all processes have to call it, and inside a function for
`ipu.compile`, where it spans the replicas of all processes. With one process it works as well.

Sources: seed 001, 18.10; fact distributed.hvd_collectives.
"""

from __future__ import annotations

import enum
import functools
import socket
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.distribution import host_collectives
from ipujax.ground import DistributionNotImplementedError, count_replica_groups, join_instances
from ipujax.horovod import ipu_horovod_strategy as ipu_horovod_strategy
from ipujax.horovod import ipu_multi_replica_strategy as ipu_multi_replica_strategy
from ipujax.horovod import popdist_strategy as popdist_strategy
from ipujax.operators import cross_replica_mean, cross_replica_sum
from ipujax.optimizers import broadcast_from_first_replica
from ipujax.strategies import check, worker_index

__all__ = [
    "Adasum",
    "Average",
    "ReduceOperation",
    "Sum",
    "allgather",
    "allreduce",
    "broadcast",
    "init",
    "ipu_horovod_strategy",
    "ipu_multi_replica_strategy",
    "is_homogeneous",
    "local_rank",
    "local_size",
    "popdist_strategy",
    "rank",
    "shutdown",
    "size",
]


def __dir__() -> list[str]:
    return __all__


Tree = Any


class ReduceOperation(enum.Enum):
    """The operation that combines the values of all processes; the module has them by name."""

    Average = 0
    Sum = 1
    Adasum = 2


Average, Sum, Adasum = ReduceOperation


def init() -> None:
    """Connects this process to the others; does nothing if it is connected or alone."""
    join_instances()


def shutdown() -> None:
    """Does nothing, as the processes disconnect when they end."""


def size() -> int:
    """Returns the number of processes."""
    return count_replica_groups()


def rank() -> int:
    """Returns the index of this process, from 0."""
    return worker_index()


def local_size() -> int:
    """Returns the number of processes on this machine; all have to call it, once."""
    hosts = _list_host_numbers()
    return hosts.count(hosts[rank()])


def local_rank() -> int:
    """Returns the index of this process on its machine, from 0; all have to call it, once."""
    hosts = _list_host_numbers()
    return hosts[: rank()].count(hosts[rank()])


def is_homogeneous() -> bool:
    """Returns whether all machines have as many processes; all have to call it, once."""
    hosts = _list_host_numbers()
    return len({hosts.count(host) for host in hosts}) == 1


@check.guard
def allreduce(tensor: Tree, op: ReduceOperation | None = None) -> Tree:
    """Returns the mean, or the sum, over all processes.

    Args:
      tensor: an array, or a pytree of arrays; the same shapes in all processes.
      op: `Average` by default, or `Sum`. On the host, integers are averaged in floating point.

    Returns:
      Arrays of the same shapes, equal in all processes.

    Raises:
      DistributionNotImplementedError: (a `NotImplementedError`) `Adasum`.
      DistributionError: (a `ValueError`) inside `jax.jit`, with several processes.
      DistributionTypeError: (a `TypeError`) no arrays, another operation.
    """
    operation = (
        check.require_instance(op, ReduceOperation, "op of allreduce", optional=True) or Average
    )
    if operation is Adasum:
        raise DistributionNotImplementedError(
            "The Adasum reduction is not implemented, nor was it in the original",
            fix="use Average or Sum",
        )
    check.require_array_leaves(tensor, "allreduce")
    if host_collectives.are_values_traced(tensor, "allreduce"):
        return jax.tree.map(
            cross_replica_mean if operation is Average else cross_replica_sum, tensor
        )
    reduce_on_host = (
        host_collectives.average_over_processes
        if operation is Average
        else host_collectives.sum_over_processes
    )
    return jax.tree.map(jnp.asarray, reduce_on_host(tensor))


@check.guard
def allgather(tensor: Any, name: str | None = None) -> jax.Array:
    """Concatenates the arrays of all processes along the first axis.

    Args:
      tensor: `[any, ...]`; the first axis may differ from process to process.
      name: does nothing: arrays need no names to be told apart.

    Raises:
      DistributionError: (a `ValueError`) an array without axes, or inside a program.
      DistributionTypeError: (a `TypeError`) no array.
    """
    check.require_text(name, "the name of allgather", optional=True)
    check.require_array_leaves(tensor, "allgather")
    if host_collectives.are_values_traced(tensor, "allgather"):
        raise check.value_error(
            "allgather was called inside a program",
            "use ipu.all_to_all_op.all_gather, which is told the number of replicas",
        )
    array = check.require_array(tensor, "the tensor of allgather")
    if not array.ndim:
        raise check.value_error("allgather was given a scalar", "give it an axis: x[None]")
    return jnp.asarray(host_collectives.concatenate_over_processes(array))


@check.guard
def broadcast(tensor: Tree, root_rank: int, name: str | None = None) -> Tree:
    """Returns the values of one process, on all of them.

    Args:
      tensor: an array, or a pytree of arrays; the same shapes in all processes.
      root_rank: the index of that process.
      name: does nothing: arrays need no names to be told apart.

    Raises:
      DistributionError: (a `ValueError`) no such process; inside `jax.jit`, with several of them.
      DistributionTypeError: (a `TypeError`) no arrays.
    """
    check.require_text(name, "the name of broadcast", optional=True)
    if check.require_integer(root_rank, "root_rank", at_least=0) >= size():
        raise check.value_error(f"root_rank is {root_rank}", f"give a number below {size()}")
    check.require_array_leaves(tensor, "broadcast")
    if host_collectives.are_values_traced(tensor, "broadcast"):
        return jax.tree.map(functools.partial(broadcast_from_first_replica, root_rank), tensor)
    return jax.tree.map(jnp.asarray, host_collectives.broadcast_from_process(root_rank, tensor))


@functools.cache
def _list_host_numbers() -> list[int]:
    """Returns the machine of each process, as a number."""
    host_number = zlib.crc32(socket.gethostname().encode())
    return host_collectives.concatenate_over_processes(np.array([host_number], np.uint32)).tolist()
