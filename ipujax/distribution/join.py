"""How the processes of a program meet."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from types import TracebackType

import jax

from ipujax.distribution.instance import Instance, told
from ipujax.errors import DistributionError

_HEARTBEAT_SECONDS = 10
_lock = threading.Lock()
_joined: list[Instance] = []


def instance() -> Instance | None:
    """This process among those that run the program together; None if there are no others.

    Whoever has called `jax.distributed.initialize` has met the others, too.
    """
    if _joined:
        return _joined[0]
    if jax.distributed.is_initialized() and jax.process_count() > 1:
        count = jax.process_count()
        return Instance(jax.process_index(), count, count * jax.local_device_count())
    return None


def instance_count() -> int:
    """How many processes run the program together."""
    here = instance()
    return 1 if here is None else here.count


def join() -> Instance | None:
    """Has this process meet the others, once; gives what `instance` does.

    What has told it of them is `ipurun`, or else Slurm, MPI or Kubernetes, whose variables JAX
    knows.

    Raises:
      DistributionError: (a `ValueError`) variables of `ipurun` that are missing or wrong, or JAX
        has computed something already.
    """
    with _lock:
        if instance() is None:
            _meet(told())
        return instance()


def _meet(given: Instance | None) -> None:
    if given is None:
        _meet_as_jax_knows()
        return
    if given.count > 1:
        jax.config.update("jax_num_cpu_devices", given.local_replicas)
        is_here = given.coordinator.startswith("127.")  # then nobody else is to reach it
        _initialize(
            coordinator_address=given.coordinator,
            num_processes=given.count,
            process_id=given.index,
            **({"coordinator_bind_address": given.coordinator} if is_here else {}),
        )
    _joined.append(given)


def _meet_as_jax_knows() -> None:
    """Under a scheduler that JAX knows; alone, where there is none."""
    try:
        _initialize()
    except ValueError:  # JAX asks for the coordinator: nobody has told it of one
        return


def _initialize(**known: object) -> None:
    try:
        jax.distributed.initialize(heartbeat_timeout_seconds=_HEARTBEAT_SECONDS, **known)  # pyright: ignore[reportArgumentType]
    except RuntimeError as error:
        raise DistributionError(
            f"this process cannot meet the others: {error}",
            fix="import ipujax, or call popdist.init(), before anything computes with JAX",
        ) from error
    sys.excepthook = _leave


def _leave(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Ends at once: an interpreter that ends in its own time waits for peers that wait for it."""
    traceback.print_exception(kind, error, trace)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
