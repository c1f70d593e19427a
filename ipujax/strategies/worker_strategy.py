"""The base of the strategies for several workers; a worker is a process."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import enum
import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp

from ipujax.distribution import host_collectives
from ipujax.driver import CompiledFunction
from ipujax.ground import (
    ArrayChecks,
    DistributionError,
    DistributionTypeError,
    PyTree,
    count_replica_groups,
    current_instance,
)
from ipujax.host import iterate_dataset
from ipujax.operators import cross_replica_mean
from ipujax.optimizers import Summation
from ipujax.optimizers import worker_summation as summation
from ipujax.strategies.ipu_strategy import IPUStrategy
from ipujax.system import IPUConfig

Tree = PyTree
check = ArrayChecks(DistributionTypeError, DistributionError)


class ReduceOp(enum.Enum):
    """The operation that combines the values of workers."""

    SUM = "SUM"
    MEAN = "MEAN"


def worker_index() -> int:
    """Returns the index of this process's worker, from 0; worker 0 is the chief."""
    return current_instance().replica_group_index


@dc.dataclass(frozen=True)
class Extended:
    """The role of a worker in its strategy (fact distributed.mw_basic).

    Attributes:
      worker: the index of the worker, from 0; worker 0 is the chief.
      experimental_between_graph: whether each worker has a program of its own: always.
      experimental_should_init: whether each worker initializes its own variables: always.
    """

    worker: int
    experimental_between_graph: bool = True
    experimental_should_init: bool = True

    @property
    def should_checkpoint(self) -> bool:
        """Returns whether the worker writes checkpoints."""
        return self.worker == 0

    @property
    def should_save_summary(self) -> bool:
        """Returns whether the worker writes summaries."""
        return self.worker == 0


@dc.dataclass(frozen=True)
class DealtDataset:
    """The elements of a data set that one of several workers gets, in turn.

    A last round that does not reach all workers is left out.

    Attributes:
      dataset: an iterable, or a callable that gives one.
      worker: the index of the worker.
      workers: the number of workers.
    """

    dataset: object
    worker: int
    workers: int

    def __iter__(self) -> Iterator[Tree]:
        elements = iterate_dataset(self.dataset)
        while (
            len(round_of_elements := list(itertools.islice(elements, self.workers))) == self.workers
        ):
            yield round_of_elements[self.worker]


class WorkerStrategy:
    """Several workers, each of which has the same model and data of its own.

    Args:
      ipu_device: a logical device of this process.
      summation: the set over which pipelines, and estimators with the strategy, add up gradients;
        None where each worker keeps its own.

    Raises:
      DistributionTypeError: (a `TypeError`) arguments of a wrong type.
      DeviceError: (a `ValueError`) no such device.
    """

    def __init__(self, ipu_device: str, summation: Summation | None):
        check.require_text(ipu_device, "ipu_device")
        self._local = IPUStrategy(ipu_device, summation is not None)
        self.summation = summation

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of workers."""
        return count_replica_groups()

    @property
    def extended(self) -> Extended:
        """The role of this worker."""
        return Extended(worker_index())

    @contextlib.contextmanager
    def scope(self) -> Generator[Self]:
        """Opens the scope in which all workers together train Keras models and pipelines.

        A pipeline that is traced here takes the chief's variables, and adds up the gradients of
        all workers once per weight update; Keras averages them. What calls optax itself adds up
        by itself: `horovod.allreduce`.
        """
        with self._local.scope(), summation.enter_summation(self.summation):
            yield self

    def experimental_run_v2(
        self,
        fn: Callable[..., PyTree],
        args: Sequence[PyTree] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> PyTree:
        """Runs a function in the scope, compiled for the device (once, unless it is already).

        Args:
          fn: any function that `ipu.compile` takes.
          args: this worker's arguments.
          kwargs: this worker's arguments by name.

        Returns:
          The result of this worker.
        """
        check.require_function(fn, "fn of experimental_run_v2")
        positional = check.require_sequence(args, "args of experimental_run_v2")
        check.require_instance(kwargs, Mapping, "kwargs of experimental_run_v2", optional=True)
        with self.scope():
            if isinstance(fn, CompiledFunction):
                return fn(*positional, **dict(kwargs or {}))
            return self._local.run(fn, positional, kwargs)

    run = experimental_run_v2

    def reduce(self, reduce_op: ReduceOp | str, value: Tree, axis: int | None = None) -> Tree:
        """Combines the values of all workers: on the host, or in a program that is being traced.

        Args:
          reduce_op: "SUM", "MEAN", or a `ReduceOp`.
          value: this worker's array, or a pytree of arrays, of the same shapes on all workers.
          axis: reduced as well, before that; None for no axis.

        Returns:
          The same for all workers.

        Raises:
          DistributionError: (a `ValueError`) another operation.
          DistributionTypeError: (a `TypeError`) values that are no arrays.
        """
        op = self._parse_reduce_op(reduce_op)
        check.require_array_leaves(value, "reduce of a strategy")
        if axis is not None:
            check.require_integer(axis, "axis of reduce")
            reduce_axis = jnp.sum if op is ReduceOp.SUM else jnp.mean
            value = jax.tree.map(lambda leaf: reduce_axis(leaf, axis), value)
        self._check_reduced(op, value)
        if host_collectives.are_values_traced(value, "reduce of a strategy"):
            reduce_in_program = cross_replica_mean if op is ReduceOp.MEAN else self._sum_in_program
            return jax.tree.map(reduce_in_program, value)
        reduce_on_host = (
            host_collectives.average_over_processes
            if op is ReduceOp.MEAN
            else host_collectives.sum_over_processes
        )
        return jax.tree.map(jnp.asarray, reduce_on_host(value))

    def experimental_distribute_dataset(self, dataset: object) -> DealtDataset:
        """Returns this worker's elements of a data set that all workers have: every n-th one.

        Args:
          dataset: an iterable of elements, or a callable that gives one.
        """
        return DealtDataset(dataset, worker_index(), count_replica_groups())

    def update_ipu_config(self, config: IPUConfig) -> IPUConfig:
        """Sets the number of processes, and the index of this one, in a configuration.

        Args:
          config: changed, and returned (fact distributed.multi_replica_config).
        """
        check.require_instance(config, IPUConfig, "config of update_ipu_config")
        distribution = config.experimental.multi_replica_distribution
        distribution.process_count, distribution.process_index = (
            current_instance().count,
            current_instance().index,
        )
        return config

    def update_config_proto(self, config_proto: object) -> Any:
        """Returns a session's configuration unchanged, as JAX has no sessions."""
        return config_proto

    def _parse_reduce_op(self, op: object) -> ReduceOp:
        if isinstance(op, ReduceOp):
            return op
        name = op.upper() if isinstance(op, str) else op
        return ReduceOp[check.require_one_of(name, ReduceOp.__members__, "reduce_op")]

    def _check_reduced(self, op: ReduceOp, value: Tree) -> None:
        """Raises if this strategy does not reduce such values."""

    def _sum_in_program(self, x: PyTree) -> PyTree:
        return x if self.summation is None else self.summation.sum_across_replicas(x)
