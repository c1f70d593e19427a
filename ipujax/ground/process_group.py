"""Connects the processes of a program to each other."""

from __future__ import annotations

import os
import threading

import jax

from ipujax.ground.errors import DistributionError
from ipujax.ground.leave_instances import install_exit_on_failure
from ipujax.ground.process_instance import ALONE, Instance, read_launched_instance, read_spread
from ipujax.ground.tf_config import workers_of_cluster

_FORCED_CPU_DEVICES = "xla_force_host_platform_device_count"  # the user's own number of them
_HEARTBEAT_SECONDS = 8
"""The time without a heartbeat after which JAX ends the peers of a process, without a launcher."""

_LAUNCHED_HEARTBEAT_SECONDS = 100  # `ipurun` sees ends at once
_SHUTDOWN_SECONDS = 24 * 3600  # a process that has done its part waits for the others

_lock = threading.Lock()
_joined: list[Instance] = []


def get_joined_instance() -> Instance | None:
    """Returns the instance that this process has joined as; None if there are no others.

    A process that has called `jax.distributed.initialize` has joined, too.
    """
    if _joined:
        return _joined[0]
    if jax.distributed.is_initialized() and jax.process_count() > 1:
        count = jax.process_count()
        spread = read_spread(os.environ)
        replicas = count * jax.local_device_count() if spread == "replicas" else 1
        return Instance(jax.process_index(), count, replicas, spread=spread)
    return None


def current_instance() -> Instance:
    """Returns the instance that this process is, among others or alone."""
    return get_joined_instance() or ALONE


def count_replica_groups() -> int:
    """Returns the number of groups of replicas, one for each process unless it shares replicas."""
    return current_instance().num_replica_groups


def join_instances() -> Instance | None:
    """Connects this process to the others, once; returns what `get_joined_instance` does.

    It reads the variables of `ipurun`, or else those of Slurm, MPI or Kubernetes, which JAX knows.

    Raises:
      DistributionError: (a `ValueError`) variables of `ipurun` that are missing or wrong, or JAX
        has computed something already.
    """
    with _lock:
        if get_joined_instance() is None:
            _connect_instance(read_launched_instance())
        return get_joined_instance()


def join_tensorflow_cluster() -> Instance | None:
    """Connects like `join_instances`, by `TF_CONFIG` if nothing else describes the processes.

    The workers connect at the chief's address.

    Raises:
      DistributionError: (a `ValueError`) JAX has computed something already, or the others do not
        come.
      ConfigError: (a `ValueError`) `TF_CONFIG` is inconsistent.
    """
    with _lock:
        cluster = (
            workers_of_cluster()
            if get_joined_instance() is None and read_launched_instance() is None
            else None
        )
        if cluster is not None and len(cluster[0]) > 1:
            addresses, index = cluster
            is_here = addresses[0].startswith(("127.", "localhost:"))
            _initialize_jax_distributed(
                _HEARTBEAT_SECONDS,
                coordinator_address=addresses[0],
                num_processes=len(addresses),
                process_id=index,
                coordinator_bind_address=addresses[0] if is_here else None,
            )
            install_exit_on_failure(verdict_seconds=_HEARTBEAT_SECONDS + 2)
        return get_joined_instance()


def _connect_instance(instance: Instance | None) -> None:
    if instance is None:
        _connect_by_scheduler()
        return
    if instance.count > 1:
        divides_replicas = instance.spread == "replicas"
        if _FORCED_CPU_DEVICES not in os.environ.get("XLA_FLAGS", ""):
            count = instance.local_replicas if divides_replicas else 1
            jax.config.update("jax_num_cpu_devices", count)
        is_here = instance.coordinator.startswith("127.")  # then other machines must not reach it
        _initialize_jax_distributed(
            _LAUNCHED_HEARTBEAT_SECONDS,
            coordinator_address=instance.coordinator,
            num_processes=instance.count,
            process_id=instance.index,
            coordinator_bind_address=instance.coordinator if is_here else None,
        )
        install_exit_on_failure(verdict_seconds=0)
    _joined.append(instance)


def _connect_by_scheduler() -> None:
    """Connects under a scheduler that JAX knows; does nothing where there is none."""
    try:
        _initialize_jax_distributed(_HEARTBEAT_SECONDS)
    except ValueError:  # JAX asks for the coordinator, as there is none
        return
    install_exit_on_failure(verdict_seconds=_HEARTBEAT_SECONDS + 2)


def _initialize_jax_distributed(heartbeat: int, **options: object) -> None:
    if "JAX_ENABLE_PREEMPTION_SERVICE" not in os.environ:
        # The service would intercept SIGTERM, which would no longer end processes.
        jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            heartbeat_timeout_seconds=heartbeat,
            shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
            **options,  # pyright: ignore[reportArgumentType]
        )
    except RuntimeError as error:
        is_late = not isinstance(error, jax.errors.JaxRuntimeError)
        raise DistributionError(
            f"this process cannot meet the others: {error}",
            fix="import ipujax, or call popdist.init(), before anything computes with JAX"
            if is_late
            else "look at what the others, the first of them above all, have written",
        ) from error
