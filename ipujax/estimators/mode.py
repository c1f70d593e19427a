"""What an estimator does in one mode: a loop of the device, and what is made of what it sends."""

from __future__ import annotations

import abc
import dataclasses as dc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipujax.estimators.checks import check
from ipujax.estimators.hooks import SessionRunHook
from ipujax.estimators.scores import Scores
from ipujax.estimators.spec import ModeKeys
from ipujax.estimators.workers import Workers
from ipujax.ipu_run_config import RunConfig
from ipujax.training import Callback, Run, TrainState
from ipujax.training.state import Tree
from lowering import ops


@dc.dataclass(frozen=True)
class Settings:
    """What all modes of an estimator share.

    Attributes:
      config: how it runs.
      params: what the user's functions are given.
      batch_sizes: of some modes, over all replicas and workers.
    """

    config: RunConfig
    params: dict[str, Any]
    batch_sizes: Mapping[str, int | None]

    def params_of(self, mode: str) -> dict[str, Any]:
        """What the user's functions are given in a mode."""
        size = self.batch_sizes.get(mode)
        if size is None:
            return dict(self.params)
        config, strategy = self.config, self.workers_of(mode).strategy
        is_of_cluster = mode == ModeKeys.TRAIN and strategy is None
        copies = config.num_worker_replicas if is_of_cluster else self.workers_of(mode).count
        copies *= config.ipu_run_config.num_replicas
        if check.integer(size, f"the batch size of {mode}", at_least=1) % copies:
            raise check.refuse(
                f"the batch size of {mode} is {size}, which cannot be divided by {copies} workers "
                "and replicas",
                f"give a multiple of {copies}",
            )
        return self.params | {"batch_size": size // copies}

    def workers_of(self, mode: str) -> Workers:
        """Those that work together in a mode."""
        config = self.config
        strategies = {
            ModeKeys.TRAIN: config.train_distribute,
            ModeKeys.EVAL: config.eval_distribute,
        }
        return Workers(strategies.get(mode))

    @property
    def seed(self) -> int:
        """Of the keys that `init_fn` and `model_fn` get."""
        return self.config.tf_random_seed or 0


class Mode(Callback, abc.ABC):
    """One mode of an estimator; its programs are made once.

    Attributes:
      mode: a `ModeKeys`.
      settings: of the estimator.
      workers: that do it together.
      loop: of the device, made by `prepared`.
      step_size: how many global steps a step of the loop is.
    """

    step_size: int

    def __init__(self, mode: str, settings: Settings):
        self.mode, self.settings = mode, settings
        self.workers = settings.workers_of(mode)
        self.loop: Any = None

    @abc.abstractmethod
    def prepared(self, state: TrainState, element: Tree) -> TrainState:
        """Makes the loop, unless there is one; gives the state in the form that it carries.

        Args:
          state: to begin with; the optimizer's may be missing.
          element: the first of the data set.
        """

    @abc.abstractmethod
    def users(self, state: TrainState) -> TrainState:
        """A state of the loop as the user knows it: `prepared` undone."""

    @property
    @abc.abstractmethod
    def hooks(self) -> Sequence[SessionRunHook]:
        """Those that the model brings; known once its loop was traced."""

    def begin(self, run: Run) -> None:
        """Checks that replicas learn from one another (fact estimator.replicated_invalid)."""
        program = self.loop.executable
        if self.mode != ModeKeys.TRAIN or run.replicas == 1 or program is None:
            return
        if not ops.sums_in_loops(program.lowered.traced.jaxpr.jaxpr):
            raise check.refuse(
                f"this is not a valid replicated training graph: {run.replicas} replicas train, "
                "and nothing is summed over them",
                "wrap the optimizer: ipu.optimizers.CrossReplicaOptimizer(optax.sgd(0.1))",
            )

    @abc.abstractmethod
    def loss(self, results: Tree) -> float:
        """The mean over steps and replicas, of what a device loop of training sent."""

    @abc.abstractmethod
    def score(self, results: Tree, replicas: int, scores: Scores) -> None:
        """Adds what a device loop of evaluation sent."""

    @abc.abstractmethod
    def predictions(self, sent: Tree) -> Tree:
        """What a device loop of prediction sent, as the user gets it."""

    @abc.abstractmethod
    def function(self, state: TrainState) -> Callable[..., Tree]:
        """One step as a function of an element alone, of what the mode sends; for exports."""

    @property
    def options(self) -> dict[str, Any]:
        """Of the loop."""
        run = self.settings.config.ipu_run_config
        return {
            "device": f"/device:IPU:{run.ordinal}",
            "prefetch_depth": run.prefetch_depth,
            "step_size": self.step_size,
            "name": f"estimator_{self.mode}",
            "alone": self.mode != ModeKeys.TRAIN and not self.workers.are_several,
            "state_reduction": self.workers.state_reduction(run.num_replicas),
        }
