"""The summation of gradients over workers or replicas, in the scope of a strategy."""

from __future__ import annotations

import contextlib
import enum
import threading
from collections.abc import Generator

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ipujax.ground import count_replica_groups
from ipujax.host import trace_frames
from ipujax.operators import cross_replica_sum, divide_total, replication_index
from lowering import ops


class Summation(enum.Enum):
    """The set over which a program of several workers adds up values.

    A worker is a process, with replicas of its own.

    WORKERS: over workers, each of which contributes the mean of its replicas.
    REPLICAS: over the replicas of all workers.
    """

    WORKERS = "workers"
    REPLICAS = "replicas"

    def sum_across_replicas(self, x: ArrayLike) -> jax.Array:
        """Returns the sum of `x` over the replicas or workers of the traced program."""
        total = cross_replica_sum(x)
        if self is Summation.REPLICAS:
            return total
        return divide_total(total, _count_replicas_per_worker())


def broadcast_from_first_replica(root: int, x: ArrayLike) -> jax.Array:
    """Returns a worker's first replica's value, on all replicas of the traced program."""
    array = jnp.asarray(x)
    numbers = array.astype(jnp.int8) if array.dtype == jnp.bool_ else array
    is_root = replication_index() == root * _count_replicas_per_worker()
    return cross_replica_sum(jnp.where(is_root, numbers, 0)).astype(array.dtype)


def broadcast_from_chief(x: ArrayLike) -> jax.Array:
    """Returns the value of the chief's first replica; with one worker, the value itself."""
    return jnp.asarray(x) if _count_workers() == 1 else broadcast_from_first_replica(0, x)


class _SummationScopes(threading.local):
    def __init__(self) -> None:
        self.scopes: list[Summation | None] = []


_open = _SummationScopes()


def get_current_summation() -> Summation | None:
    """Returns the innermost scope's summation in this thread; None where gradients stay local."""
    return _open.scopes[-1] if _open.scopes else None


@contextlib.contextmanager
def enter_summation(summation: Summation | None) -> Generator[None]:
    """Opens a scope in which pipelines add up their gradients over the given set."""
    _open.scopes.append(summation)
    try:
        yield
    finally:
        _open.scopes.pop()


def _count_replicas_per_worker() -> jax.Array:
    return ops.replica_count() // _count_workers()


def _count_workers() -> int:
    """Returns the number of workers that run the program that is being traced."""
    frame = trace_frames.current_trace_frame()
    return count_replica_groups() if frame is None else frame.instances
