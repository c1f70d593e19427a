"""What the strategies for several workers have in common; a worker is a process."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import enum
import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.checks.arrays import ArrayChecks
from ipujax.config import IPUConfig
from ipujax.cross_replica_ops import cross_replica_mean
from ipujax.distribution import collectives, summation
from ipujax.distribution.join import here, instance_count
from ipujax.distribution.summation import Summation
from ipujax.driver.compiler import CompiledFunction
from ipujax.errors import DistributionError, DistributionTypeError
from ipujax.host.elements import iterate
from ipujax.ipu_strategy import IPUStrategy

Tree = Any
check = ArrayChecks(DistributionTypeError, DistributionError)


class ReduceOp(enum.Enum):
    """How the values of workers become one."""

    SUM = "SUM"
    MEAN = "MEAN"


def worker() -> int:
    """Which worker this process is, from 0; that one is the chief."""
    return here().share_of_replicas


@dc.dataclass(frozen=True)
class Extended:
    """What a worker does in its strategy (fact distributed.mw_basic).

    Attributes:
      worker: which of the workers it is, from 0; that one is the chief.
      experimental_between_graph: each worker has a program of its own: always.
      experimental_should_init: each has its own variables to begin with: always.
    """

    worker: int
    experimental_between_graph: bool = True
    experimental_should_init: bool = True

    @property
    def should_checkpoint(self) -> bool:
        """Whether it writes checkpoints."""
        return self.worker == 0

    @property
    def should_save_summary(self) -> bool:
        """Whether it writes summaries."""
        return self.worker == 0


@dc.dataclass(frozen=True)
class DealtDataset:
    """The elements that are dealt to one of several workers, in turn.

    A last round that does not reach all workers is left out.

    Attributes:
      dataset: an iterable, or a callable that gives one.
      worker: whose they are.
      workers: how many there are.
    """

    dataset: Any
    worker: int
    workers: int

    def __iter__(self) -> Iterator[Any]:
        elements = iterate(self.dataset)
        while len(dealt := list(itertools.islice(elements, self.workers))) == self.workers:
            yield dealt[self.worker]


class WorkerStrategy:
    """Several workers, each of which has the same model and data of its own.

    Args:
      ipu_device: a logical device of this process.
      summation: what pipelines, and estimators that are given the strategy, add up gradients over;
        None where each worker keeps its own.

    Raises:
      DistributionTypeError: (a `TypeError`) arguments of a wrong type.
      DeviceError: (a `ValueError`) no such device.
    """

    def __init__(self, ipu_device: str, summation: Summation | None):
        check.text(ipu_device, "ipu_device")
        self._local = IPUStrategy(ipu_device, summation is not None)
        self.summation = summation

    @property
    def num_replicas_in_sync(self) -> int:
        """How many workers there are."""
        return instance_count()

    @property
    def extended(self) -> Extended:
        """What this worker does."""
        return Extended(worker())

    @contextlib.contextmanager
    def scope(self) -> Generator[Any]:
        """The scope in which models of Keras and pipelines are trained by all workers together.

        A pipeline that is traced here takes the chief's variables, and adds up the gradients of
        all workers once per weight update; Keras averages them. What calls optax itself adds up
        by itself: `horovod.allreduce`.
        """
        with self._local.scope(), summation.entered(self.summation):
            yield self

    def experimental_run_v2(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Runs a function in the scope, compiled for the device (once, unless it is already).

        Args:
          fn: any function that `ipu.compile` takes.
          args: this worker's arguments.
          kwargs: the same by name.

        Returns:
          What this worker has of it.
        """
        check.function(fn, "fn of experimental_run_v2")
        positional = check.sequence(args, "args of experimental_run_v2")
        check.instance(kwargs, Mapping, "kwargs of experimental_run_v2", optional=True)
        with self.scope():
            if isinstance(fn, CompiledFunction):
                return fn(*positional, **dict(kwargs or {}))
            return self._local.run(fn, positional, kwargs)

    run = experimental_run_v2

    def reduce(self, reduce_op: ReduceOp | str, value: Tree, axis: int | None = None) -> Tree:
        """What all workers have, as one: on the host, or in a program that is being traced.

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
        op = self._operation(reduce_op)
        check.leaves(value, "reduce of a strategy")
        if axis is not None:
            check.integer(axis, "axis of reduce")
            along = jnp.sum if op is ReduceOp.SUM else jnp.mean
            value = jax.tree.map(lambda leaf: along(leaf, axis), value)
        self._check_reduced(op, value)
        if collectives.is_traced(value, "reduce of a strategy"):
            how = cross_replica_mean if op is ReduceOp.MEAN else self._summed_in_programs
            return jax.tree.map(how, value)
        whole = collectives.averaged if op is ReduceOp.MEAN else collectives.summed
        return jax.tree.map(jnp.asarray, whole(value))

    def experimental_distribute_dataset(self, dataset: Any) -> DealtDataset:
        """This worker's elements of a data set that all workers have: dealt one by one, in turn.

        Args:
          dataset: an iterable of elements, or a callable that gives one.
        """
        return DealtDataset(dataset, worker(), instance_count())

    def update_ipu_config(self, config: IPUConfig) -> IPUConfig:
        """Tells a configuration how many processes there are, and which this is.

        Args:
          config: changed, and given back (fact distributed.multi_replica_config).
        """
        check.instance(config, IPUConfig, "config of update_ipu_config")
        distribution = config.experimental.multi_replica_distribution
        distribution.process_count, distribution.process_index = here().count, here().index
        return config

    def update_config_proto(self, config_proto: Any) -> Any:
        """Gives a session's configuration back as it is: JAX has no sessions."""
        return config_proto

    def _operation(self, op: Any) -> ReduceOp:
        if isinstance(op, ReduceOp):
            return op
        name = op.upper() if isinstance(op, str) else op
        return ReduceOp[check.one_of(name, ReduceOp.__members__, "reduce_op")]

    def _check_reduced(self, op: ReduceOp, value: Tree) -> None:
        """Refuses what this strategy does not reduce."""

    def _summed_in_programs(self, x: Any) -> Any:
        return x if self.summation is None else self.summation.of(x)
