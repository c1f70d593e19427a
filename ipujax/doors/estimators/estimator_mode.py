"""The base of an estimator's modes: a device loop, and the handling of its results."""

from __future__ import annotations

import abc
import dataclasses as dc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipujax.doors.estimators.estimator_checks import check
from ipujax.doors.estimators.estimator_spec import ModeKeys
from ipujax.doors.estimators.ipu_run_config import RunConfig
from ipujax.doors.estimators.metric_totals import MetricTotals
from ipujax.doors.estimators.session_hooks import SessionRunHook
from ipujax.doors.estimators.workers import Workers
from ipujax.ground import Keywords
from ipujax.operators import has_sums_in_loops
from ipujax.training import Callback, Run, TrainState, Tree


@dc.dataclass(frozen=True)
class EstimatorSettings:
    """The settings that all modes of an estimator share.

    Attributes:
      config: the `RunConfig` of the estimator.
      params: the dict that the user's functions get.
      batch_sizes: the batch sizes of some modes, over all replicas and workers.
    """

    config: RunConfig
    params: dict[str, Any]
    batch_sizes: Mapping[str, int | None]

    def params_of(self, mode: str) -> Keywords:
        """Returns the params that the user's functions get in a mode, with its batch size."""
        size = self.batch_sizes.get(mode)
        if size is None:
            return dict(self.params)
        config, strategy = self.config, self.workers_of(mode).strategy
        is_of_cluster = mode == ModeKeys.TRAIN and strategy is None
        num_copies = (
            config.num_worker_replicas if is_of_cluster else self.workers_of(mode).worker_count
        )
        num_copies *= config.ipu_run_config.num_replicas
        if check.require_integer(size, f"the batch size of {mode}", at_least=1) % num_copies:
            raise check.value_error(
                f"the batch size of {mode} is {size}, which cannot be divided by {num_copies} "
                "workers and replicas",
                f"give a multiple of {num_copies}",
            )
        return self.params | {"batch_size": size // num_copies}

    def workers_of(self, mode: str) -> Workers:
        """Returns the workers that run a mode together."""
        config = self.config
        strategies = {
            ModeKeys.TRAIN: config.train_distribute,
            ModeKeys.EVAL: config.eval_distribute,
        }
        return Workers(strategies.get(mode))

    @property
    def key_seed(self) -> int:
        """The seed of the keys that `init_fn` and `model_fn` get."""
        return self.config.tf_random_seed or 0


class EstimatorMode(Callback, abc.ABC):
    """One mode of an estimator, with its device loop.

    Attributes:
      mode: a `ModeKeys`.
      settings: the settings of the estimator.
      workers: the workers that run the mode together.
      loop: the device loop, made by `prepare_loop_state`.
      step_size: the number of global steps in a step of the loop.
    """

    step_size: int

    def __init__(self, mode: str, settings: EstimatorSettings):
        self.mode, self.settings = mode, settings
        self.workers = settings.workers_of(mode)
        self.loop: Any = None

    @abc.abstractmethod
    def prepare_loop_state(self, state: TrainState, element: Tree) -> TrainState:
        """Makes the loop, unless there is one; returns the state in the form that it carries.

        Args:
          state: the state to begin with; the optimizer's may be missing.
          element: the first element of the data set.
        """

    @abc.abstractmethod
    def to_user_state(self, state: TrainState) -> TrainState:
        """Returns a state of the loop in the user's form: undoes `prepare_loop_state`."""

    @property
    @abc.abstractmethod
    def model_hooks(self) -> Sequence[SessionRunHook]:
        """The hooks that the model brings, known once its loop was traced."""

    def begin(self, run: Run) -> None:
        """Raises if replicas train without exchanging gradients."""
        program = self.loop.executable
        if self.mode != ModeKeys.TRAIN or run.replicas == 1 or program is None:
            return
        if not has_sums_in_loops(program.lowered.traced.jaxpr):
            raise check.value_error(
                f"this is not a valid replicated training graph: {run.replicas} replicas train, "
                "and nothing is summed over them",
                "wrap the optimizer: ipu.optimizers.CrossReplicaOptimizer(optax.sgd(0.1))",
            )

    @abc.abstractmethod
    def mean_loss(self, results: Tree) -> float:
        """Returns the mean loss over steps and replicas of a device loop of training."""

    @abc.abstractmethod
    def add_to_totals(self, results: Tree, replicas: int, scores: MetricTotals) -> None:
        """Adds the results of a device loop of evaluation to totals."""

    @abc.abstractmethod
    def select_predictions(self, sent: Tree) -> Tree:
        """Returns the predictions that a device loop sent, in the user's form."""

    @abc.abstractmethod
    def build_serving_function(self, state: TrainState) -> Callable[..., Tree]:
        """Returns one step as a function of an element alone, for exports."""

    @property
    def device_loop_options(self) -> Keywords:
        """The arguments of the device loop that all modes have."""
        run = self.settings.config.ipu_run_config
        return {
            "device": f"/device:IPU:{run.ordinal}",
            "prefetch_depth": run.prefetch_depth,
            "step_size": self.step_size,
            "name": f"estimator_{self.mode}",
            "alone": self.mode != ModeKeys.TRAIN and not self.workers.are_several,
            "state_reduction": self.workers.make_state_reduction(run.num_replicas),
        }
