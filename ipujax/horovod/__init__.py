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

from ipujax.cross_replica_ops import cross_replica_mean, cross_replica_sum
from ipujax.distribution import collectives
from ipujax.distribution.join import instance_count, join
from ipujax.distribution.strategy import check, worker
from ipujax.distribution.summation import of_first_replica
from ipujax.errors import DistributionNotImplementedError
from ipujax.horovod import ipu_horovod_strategy as ipu_horovod_strategy
from ipujax.horovod import ipu_multi_replica_strategy as ipu_multi_replica_strategy

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
    "rank",
    "shutdown",
    "size",
]


def __dir__() -> list[str]:
    return __all__


Tree = Any


class ReduceOperation(enum.Enum):
    """How the values of all processes become one; the module has them by name."""

    Average = 0
    Sum = 1
    Adasum = 2


Average, Sum, Adasum = ReduceOperation


def init() -> None:
    """Has this process meet the others; does nothing where it has, or there are none."""
    join()


def shutdown() -> None:
    """Does nothing: the processes part when they end."""


def size() -> int:
    """How many processes there are."""
    return instance_count()


def rank() -> int:
    """Which process this is, from 0."""
    return worker()


def local_size() -> int:
    """How many of the processes are on this machine; all have to ask for it, once."""
    hosts = _hosts()
    return hosts.count(hosts[rank()])


def local_rank() -> int:
    """Which of the processes on this machine this is, from 0; all have to ask for it, once."""
    hosts = _hosts()
    return hosts[: rank()].count(hosts[rank()])


def is_homogeneous() -> bool:
    """Whether all machines have as many processes; all have to ask for it, once."""
    hosts = _hosts()
    return len({hosts.count(host) for host in hosts}) == 1


@check.guard
def allreduce(tensor: Tree, op: ReduceOperation | None = None) -> Tree:
    """The mean, or the sum, over all processes.

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
    how = check.instance(op, ReduceOperation, "op of allreduce", optional=True) or Average
    if how is Adasum:
        raise DistributionNotImplementedError(
            "The Adasum reduction is not implemented, nor was it in the original",
            fix="use Average or Sum",
        )
    check.leaves(tensor, "allreduce")
    if collectives.is_traced(tensor, "allreduce"):
        return jax.tree.map(cross_replica_mean if how is Average else cross_replica_sum, tensor)
    whole = collectives.averaged if how is Average else collectives.summed
    return jax.tree.map(jnp.asarray, whole(tensor))


@check.guard
def allgather(tensor: Any, name: str | None = None) -> jax.Array:
    """The arrays of all processes, one after the other along the first axis.

    Args:
      tensor: `[any, ...]`; the first axis may differ from process to process.
      name: does nothing: arrays need no names to be told apart.

    Raises:
      DistributionError: (a `ValueError`) an array without axes, or inside a program.
      DistributionTypeError: (a `TypeError`) no array.
    """
    check.text(name, "the name of allgather", optional=True)
    check.leaves(tensor, "allgather")
    if collectives.is_traced(tensor, "allgather"):
        raise check.refuse(
            "allgather was called inside a program",
            "use ipu.all_to_all_op.all_gather, which is told the number of replicas",
        )
    array = check.array(tensor, "the tensor of allgather")
    if not array.ndim:
        raise check.refuse("allgather was given a scalar", "give it an axis: x[None]")
    return jnp.asarray(collectives.gathered(array))


@check.guard
def broadcast(tensor: Tree, root_rank: int, name: str | None = None) -> Tree:
    """What one process has, on all of them.

    Args:
      tensor: an array, or a pytree of arrays; the same shapes in all processes.
      root_rank: which process.
      name: does nothing: arrays need no names to be told apart.

    Raises:
      DistributionError: (a `ValueError`) no such process; inside `jax.jit`, with several of them.
      DistributionTypeError: (a `TypeError`) no arrays.
    """
    check.text(name, "the name of broadcast", optional=True)
    if check.integer(root_rank, "root_rank", at_least=0) >= size():
        raise check.refuse(f"root_rank is {root_rank}", f"give a number below {size()}")
    check.leaves(tensor, "broadcast")
    if collectives.is_traced(tensor, "broadcast"):
        return jax.tree.map(functools.partial(of_first_replica, root_rank), tensor)
    return jax.tree.map(jnp.asarray, collectives.sent_by(root_rank, tensor))


@functools.cache
def _hosts() -> list[int]:
    """Which machine each process is on, as numbers."""
    own = zlib.crc32(socket.gethostname().encode())
    return collectives.gathered(np.array([own], np.uint32)).tolist()
