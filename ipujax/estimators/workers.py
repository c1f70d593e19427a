"""The workers that train an estimator together, and what the chief does for all of them."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.cross_replica_ops import cross_replica_mean
from ipujax.distribution import collectives
from ipujax.distribution.join import here
from ipujax.distribution.strategy import WorkerStrategy
from ipujax.estimators.checks import check
from ipujax.optimizers.summing_optimizer import SummingOptimizer
from ipujax.optimizers.trained_leaves import is_trained
from ipujax.training import Callback, Run, TrainState
from ipujax.training.state import Tree

_T = TypeVar("_T")


@check.guard
@dc.dataclass(frozen=True)
class InputContext:
    """What `input_fn` may ask of the worker that it is called on.

    Attributes:
      num_input_pipelines: how many workers call it.
      input_pipeline_id: which of them this one is, from 0.
      num_replicas_in_sync: that of the strategy.
    """

    num_input_pipelines: int
    input_pipeline_id: int
    num_replicas_in_sync: int

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Of a batch of all workers together, the part of one.

        Raises:
          EstimatorError: (a `ValueError`) it cannot be divided.
        """
        whole = check.integer(global_batch_size, "global_batch_size", at_least=1)
        size, rest = divmod(whole, self.num_replicas_in_sync)
        if rest:
            raise check.refuse(
                f"the global_batch_size {global_batch_size} cannot be divided by "
                f"{self.num_replicas_in_sync} workers",
                f"give a multiple of {self.num_replicas_in_sync}",
            )
        return size


@dc.dataclass(frozen=True)
class Workers:
    """Those of a strategy; without one, this process does all of the work.

    Processes to which the IPUs of a replica are dealt do the work of one worker together. All
    processes call these functions, in the same order.

    Attributes:
      strategy: that they train under.
    """

    strategy: WorkerStrategy | None = None

    @property
    def count(self) -> int:
        """How many there are."""
        return 1 if self.strategy is None else self.strategy.num_replicas_in_sync

    @property
    def are_several(self) -> bool:
        """Whether there are other processes to agree with."""
        return here().count > 1 and (self.strategy is not None or here().spread == "ipus")

    @property
    def is_chief(self) -> bool:
        """Whether this process reads and writes files."""
        return not self.are_several or here().index == 0

    @property
    def context(self) -> InputContext | None:
        """What `input_fn` may ask of this worker; None without a strategy."""
        if self.strategy is None:
            return None
        return InputContext(self.count, self.strategy.extended.worker, self.count)

    # --- on the host ----------------------------------------------------------------------------

    def of_chief(self, tree: Tree) -> Tree:
        """The arrays that the chief has, on all of them."""
        return collectives.sent_by(0, tree) if self.are_several else tree

    def chiefs(self, find: Callable[[], _T], otherwise: _T) -> _T:
        """What the chief finds, which the others have as arrays of the same form."""
        return self.of_chief(find() if self.is_chief else otherwise)

    def text_of_chief(self, text: str | None) -> str | None:
        """A text, or None, that the chief knows."""
        if not self.are_several:
            return text
        own = np.frombuffer((text or "").encode(), np.uint8)
        data = np.resize(own, int(self.of_chief(np.int32(len(own)))))
        return bytes(self.of_chief(data)).decode() or None

    def averaged(self, state: TrainState) -> TrainState:
        """A state with the mean over all workers of what is untrained, float or complex."""
        leaves, structure = jax.tree.flatten(state.state)
        places = [n for n, leaf in enumerate(leaves) if is_trained(leaf)]
        if not self.are_several or not places:
            return state
        means = collectives.averaged([leaves[n] for n in places])
        for place, mean in zip(places, means, strict=True):
            leaves[place] = jnp.asarray(mean)
        return dc.replace(state, state=structure.unflatten(leaves))

    def mean(self, value: float) -> float:
        """The mean of what all workers have."""
        if not self.are_several:
            return value
        return float(collectives.averaged(np.float32(value)))

    def summed(self, totals: Tree) -> Tree:
        """The sum of what all workers have, in 64 bits where they have so many."""
        if not self.are_several:
            return totals
        return jax.tree.map(lambda x: collectives.gathered(np.asarray(x)[None]).sum(0), totals)

    # --- in programs ----------------------------------------------------------------------------

    def summing(self, optimizer: Any) -> Any:
        """An optimizer that adds up the gradients of all workers, if the strategy says so."""
        if self.strategy is None or self.strategy.summation is None:
            return optimizer
        return SummingOptimizer(optimizer, self.strategy.summation)

    def state_reduction(self, replicas: int) -> Callable[[Tree, Tree], Tree] | None:
        """What becomes of the untrained state of so many replicas of each worker: their mean.

        The workers' own are averaged where they are read (fact distributed.mw_sync_on_read).
        """
        if not self.are_several:
            return None

        def mean(leaf: jax.Array) -> jax.Array:
            return cross_replica_mean(leaf, replicas) if is_trained(leaf) else leaf

        return lambda before, after: jax.tree.map(mean, after)


class Agreement(Callback):
    """Has all workers stop where one is asked to, such as by a hook that sees its loss."""

    def __init__(self, workers: Workers):
        self._workers = workers

    def after_run(self, run: Run, results: Tree) -> None:
        """Asks the others."""
        if self._workers.are_several and collectives.summed(np.int32(run.stopped)):
            run.request_stop()
