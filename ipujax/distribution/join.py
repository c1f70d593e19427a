"""How the processes of a program meet."""

from __future__ import annotations

import os
import threading

import jax

from ipujax.distribution.instance import ALONE, Instance, spread_of, told
from ipujax.distribution.leave import leave_at_once_on_failure
from ipujax.errors import DistributionError
from ipujax.system.tf_config import workers_of_cluster

_HEARTBEAT_SECONDS = 8
"""After so long without a sign of life JAX ends the peers of a process, where nobody else does."""

_LAUNCHED_HEARTBEAT_SECONDS = 100  # `ipurun` sees at once who ends; one that is slow has time
_SHUTDOWN_SECONDS = 24 * 3600  # one that has done its part waits for those that compute

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
        spread = spread_of(os.environ)
        replicas = count * jax.local_device_count() if spread == "replicas" else 1
        return Instance(jax.process_index(), count, replicas, spread=spread)
    return None


def here() -> Instance:
    """This process, among others or alone."""
    return instance() or ALONE


def instance_count() -> int:
    """To how many processes the replicas are dealt."""
    return here().shares_of_replicas


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


def join_cluster() -> Instance | None:
    """As `join`; where nothing else has told this process of others, `TF_CONFIG` does.

    The chief's address there is where the workers meet.

    Raises:
      DistributionError: (a `ValueError`) JAX has computed something already, or the others do not
        come.
      ConfigError: (a `ValueError`) what `TF_CONFIG` holds does not fit.
    """
    with _lock:
        cluster = workers_of_cluster() if instance() is None and told() is None else None
        if cluster is not None and len(cluster[0]) > 1:
            addresses, index = cluster
            is_here = addresses[0].startswith(("127.", "localhost:"))
            _initialize(
                _HEARTBEAT_SECONDS,
                coordinator_address=addresses[0],
                num_processes=len(addresses),
                process_id=index,
                coordinator_bind_address=addresses[0] if is_here else None,
            )
            leave_at_once_on_failure(verdict_seconds=_HEARTBEAT_SECONDS + 2)
        return instance()


def _meet(given: Instance | None) -> None:
    if given is None:
        _meet_as_jax_knows()
        return
    if given.count > 1:
        is_dealt = given.spread == "replicas"
        jax.config.update("jax_num_cpu_devices", given.local_replicas if is_dealt else 1)
        is_here = given.coordinator.startswith("127.")  # then nobody else is to reach it
        _initialize(
            _LAUNCHED_HEARTBEAT_SECONDS,
            coordinator_address=given.coordinator,
            num_processes=given.count,
            process_id=given.index,
            coordinator_bind_address=given.coordinator if is_here else None,
        )
        leave_at_once_on_failure(verdict_seconds=0)
    _joined.append(given)


def _meet_as_jax_knows() -> None:
    """Under a scheduler that JAX knows; alone, where there is none."""
    try:
        _initialize(_HEARTBEAT_SECONDS)
    except ValueError:  # JAX asks for the coordinator: nobody has told it of one
        return
    leave_at_once_on_failure(verdict_seconds=_HEARTBEAT_SECONDS + 2)


def _initialize(heartbeat: int, **known: object) -> None:
    if "JAX_ENABLE_PREEMPTION_SERVICE" not in os.environ:
        # It would keep SIGTERM to itself, and processes would not end by it.
        jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            heartbeat_timeout_seconds=heartbeat,
            shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
            **known,  # pyright: ignore[reportArgumentType]
        )
    except RuntimeError as error:
        is_late = not isinstance(error, jax.errors.JaxRuntimeError)
        raise DistributionError(
            f"this process cannot meet the others: {error}",
            fix="import ipujax, or call popdist.init(), before anything computes with JAX"
            if is_late
            else "look at what the others, the first of them above all, have written",
        ) from error
