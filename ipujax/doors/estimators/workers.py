"""The workers that train an estimator together, and the duties of their chief."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.distribution import host_collectives
from ipujax.doors.estimators.estimator_checks import check
from ipujax.ground import current_instance
from ipujax.operators import cross_replica_mean
from ipujax.optimizers import SummingOptimizer, has_gradient
from ipujax.strategies import WorkerStrategy
from ipujax.training import Callback, Run, TrainState, Tree

_T = TypeVar("_T")


@check.guard
@dc.dataclass(frozen=True)
class InputContext:
    """The worker on which `input_fn` is called.

    Attributes:
      num_input_pipelines: the number of workers that call `input_fn`.
      input_pipeline_id: the index of this worker, from 0.
      num_replicas_in_sync: the number of workers of the strategy.
    """

    num_input_pipelines: int
    input_pipeline_id: int
    num_replicas_in_sync: int

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Returns the batch size of one worker, from that of all workers together.

        Raises:
          EstimatorError: (a `ValueError`) the global size cannot be divided.
        """
        global_size = check.require_integer(global_batch_size, "global_batch_size", at_least=1)
        size, remainder = divmod(global_size, self.num_replicas_in_sync)
        if remainder:
            raise check.value_error(
                f"the global_batch_size {global_batch_size} cannot be divided by "
                f"{self.num_replicas_in_sync} workers",
                f"give a multiple of {self.num_replicas_in_sync}",
            )
        return size


@dc.dataclass(frozen=True)
class Workers:
    """The workers of a strategy; without one, this process does all of the work.

    Processes that share the IPUs of one replica are one worker together. All processes call these
    methods, in the same order.

    Attributes:
      strategy: the strategy of the training; None for this process alone.
    """

    strategy: WorkerStrategy | None = None

    @property
    def worker_count(self) -> int:
        """The number of workers."""
        return 1 if self.strategy is None else self.strategy.num_replicas_in_sync

    @property
    def are_several(self) -> bool:
        """True if there are other processes to agree with."""
        return current_instance().count > 1 and (
            self.strategy is not None or current_instance().spread == "ipus"
        )

    @property
    def is_chief_process(self) -> bool:
        """True if this process reads and writes files."""
        return not self.are_several or current_instance().index == 0

    @property
    def worker_input_context(self) -> InputContext | None:
        """The input context of this worker; None without a strategy."""
        if self.strategy is None:
            return None
        return InputContext(self.worker_count, self.strategy.extended.worker, self.worker_count)

    # --- on the host ----------------------------------------------------------------------------

    def broadcast_tree_of_chief(self, tree: Tree) -> Tree:
        """Returns the chief's arrays, on all workers."""
        return host_collectives.broadcast_from_process(0, tree) if self.are_several else tree

    def find_on_chief(self, find_value: Callable[[], _T], template: _T) -> _T:
        """Returns the result of a function that only the chief calls, on all workers."""
        return self.broadcast_tree_of_chief(find_value() if self.is_chief_process else template)

    def broadcast_optional_text(self, text: str | None) -> str | None:
        """Returns the chief's text, or None, on all workers."""
        if not self.are_several:
            return text
        encoded_text = np.frombuffer((text or "").encode(), np.uint8)
        data = np.resize(
            encoded_text, int(self.broadcast_tree_of_chief(np.int32(len(encoded_text))))
        )
        return bytes(self.broadcast_tree_of_chief(data)).decode() or None

    def average_untrained(self, state: TrainState) -> TrainState:
        """Returns a state whose untrained leaves of float or complex are averaged over workers."""
        leaves, structure = jax.tree.flatten(state.state)
        averaged_indices = [n for n, leaf in enumerate(leaves) if has_gradient(leaf)]
        if not self.are_several or not averaged_indices:
            return state
        means = host_collectives.average_over_processes([leaves[n] for n in averaged_indices])
        for index, mean in zip(averaged_indices, means, strict=True):
            leaves[index] = jnp.asarray(mean)
        return dc.replace(state, state=structure.unflatten(leaves))

    def average_value(self, value: float) -> float:
        """Returns the mean of a value over all workers."""
        if not self.are_several:
            return value
        return float(host_collectives.average_over_processes(np.float32(value)))

    def sum_over_workers(self, totals: Tree) -> Tree:
        """Returns the sum of totals over all workers, without losing 64 bits."""
        if not self.are_several:
            return totals
        return jax.tree.map(
            lambda total: host_collectives.concatenate_over_processes(np.asarray(total)[None]).sum(
                0
            ),
            totals,
        )

    # --- in programs ----------------------------------------------------------------------------

    def wrap_with_summation(self, optimizer: object) -> Any:
        """Returns an optimizer that adds up gradients of all workers, if the strategy does."""
        if self.strategy is None or self.strategy.summation is None:
            return optimizer
        return SummingOptimizer(optimizer, self.strategy.summation)

    def make_state_reduction(self, replicas: int) -> Callable[[Tree, Tree], Tree] | None:
        """Returns the function that averages untrained state over the replicas of a worker.

        The states of workers are averaged where they are read (fact distributed.mw_sync_on_read).
        """
        if not self.are_several:
            return None

        def average_over_replicas(leaf: jax.Array) -> jax.Array:
            return cross_replica_mean(leaf, replicas) if has_gradient(leaf) else leaf

        return lambda before, after: jax.tree.map(average_over_replicas, after)


class StopAgreement(Callback):
    """A callback that has all workers stop when one of them is asked to stop."""

    def __init__(self, workers: Workers):
        self._workers = workers

    def after_run(self, run: Run, results: Tree) -> None:
        """Asks the other workers whether to stop."""
        if self._workers.are_several and host_collectives.sum_over_processes(np.int32(run.stopped)):
            run.request_stop()
