"""What gradients are added up over in the scope of a strategy, where we apply the optimizer."""

from __future__ import annotations

import contextlib
import enum
import threading
from collections.abc import Generator
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.cross_replica_ops import cross_replica_sum
from ipujax.distribution.join import instance_count
from ipujax.driver import tracing
from ipujax.operators.collectives import divided
from ipujax.replication_ops import replication_index
from lowering import ops


class Summation(enum.Enum):
    """Over what a program of several workers adds something up.

    A worker is a process, with replicas of its own.

    WORKERS: each worker gives the mean of its replicas.
    REPLICAS: those of all workers.
    """

    WORKERS = "workers"
    REPLICAS = "replicas"

    def of(self, x: Any) -> jax.Array:
        """The sum of what the replicas of the program being traced have, like `x`."""
        total = cross_replica_sum(x)
        if self is Summation.REPLICAS:
            return total
        return divided(total, _replicas_of_a_worker())


def of_first_replica(root: int, x: Any) -> jax.Array:
    """What the first replica of a worker has, on all replicas of the program being traced."""
    array = jnp.asarray(x)
    numbers = array.astype(jnp.int8) if array.dtype == jnp.bool_ else array
    is_root = replication_index() == root * _replicas_of_a_worker()
    return cross_replica_sum(jnp.where(is_root, numbers, 0)).astype(array.dtype)


def of_chief(x: Any) -> jax.Array:
    """What the chief's first replica has; alone, a worker keeps what it has."""
    return jnp.asarray(x) if _workers() == 1 else of_first_replica(0, x)


class _Open(threading.local):
    def __init__(self) -> None:
        self.scopes: list[Summation | None] = []


_open = _Open()


def current() -> Summation | None:
    """That of the innermost scope of this thread; None outside, and where gradients stay local."""
    return _open.scopes[-1] if _open.scopes else None


@contextlib.contextmanager
def entered(summation: Summation | None) -> Generator[None]:
    """A scope in which pipelines add up their gradients so."""
    _open.scopes.append(summation)
    try:
        yield
    finally:
        _open.scopes.pop()


def _replicas_of_a_worker() -> jax.Array:
    return ops.replica_count() // _workers()


def _workers() -> int:
    """How many run the program that is being traced."""
    frame = tracing.current()
    return instance_count() if frame is None else frame.instances
