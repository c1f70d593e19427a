"""A mode of an estimator whose model is one function."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.checks.structures import shown
from ipujax.driver.compiler import compile
from ipujax.estimators.checks import check, check_metric_names
from ipujax.estimators.hooks import SessionRunHook
from ipujax.estimators.mode import Mode, Settings
from ipujax.estimators.model_fn import ByName, body_arguments, features_and_labels
from ipujax.estimators.scores import Scores, metrics_of, unstacked
from ipujax.estimators.spec import RESERVED_METRICS, IPUEstimatorSpec, ModeKeys
from ipujax.estimators.workers import Workers
from ipujax.optimizers.trained_leaves import initial_state
from ipujax.replication_ops import replication_index
from ipujax.training import Inference, ReplicaReduction, Run, StepOutput, Training, TrainState
from ipujax.training.state import Tree


class Untrained(NamedTuple):
    """What is not trained, as the programs carry it.

    Attributes:
      state: the user's.
      number: of the step, int32: what the step's key is made of.
    """

    state: Tree
    number: jax.Array


@dc.dataclass
class FunctionModel:
    """A `model_fn` as a model of `training`, in one mode.

    Attributes:
      function: the `model_fn`.
      mode: a `ModeKeys`.
      fixed: values of `params` and `config`.
      seed: of the keys.
      workers: that train it together.
      specs: what traces gave, by the form of the element: of what is no array in it, such as hooks
        and functions of the host.
    """

    function: ByName
    mode: str
    fixed: dict[str, Any]
    seed: int
    workers: Workers
    specs: dict[Hashable, IPUEstimatorSpec] = dc.field(default_factory=dict)

    def __call__(
        self, variables: Tree, untrained: Untrained, *element: Tree, **by_name: Tree
    ) -> StepOutput:
        """As a model of `training`."""
        values: dict[str, Any] = {"mode": self.mode, "state": untrained.state, **self.fixed}
        if self.function.takes("global_step"):
            values["global_step"], element = element[0], element[1:]
        if self.function.takes("key"):
            key = jax.random.fold_in(jax.random.key(self.seed), untrained.number)
            values["key"] = jax.random.fold_in(key, replication_index())
        values["features"], values["labels"] = features_and_labels(element, by_name)
        self._check_labels(values["labels"])
        spec = self._checked(self.function(variables, **values))
        state = spec.state
        if state is None:
            state = untrained.state
        elif jax.tree.structure(state) != jax.tree.structure(untrained.state):
            raise check.refuse(
                f"the state of the IPUEstimatorSpec is {shown(jax.tree.structure(state))}, that of "
                f"init_fn {shown(jax.tree.structure(untrained.state))}",
                "return state of the structure that init_fn gave as the second of its results",
            )
        self.specs[form_of(element, by_name)] = spec.without_arrays()
        sent = self._sent(spec)
        after = Untrained(state, untrained.number + 1)
        return StepOutput(spec.loss, sent, after, self.optimizer(spec))

    def optimizer(self, spec: IPUEstimatorSpec) -> Any:
        """What minimizes the loss; None where nothing is trained."""
        return spec.train_op and self.workers.summing(spec.train_op)

    def _sent(self, spec: IPUEstimatorSpec) -> Tree:
        if self.mode == ModeKeys.PREDICT:
            return spec.predictions
        sent: dict[str, Tree] = {"loss": spec.loss}
        if self.mode == ModeKeys.TRAIN and spec.host_call is not None:
            sent["host_call"] = spec.host_call[1]
        elif self.mode == ModeKeys.EVAL and spec.eval_metrics is not None:
            sent["tensors"] = spec.eval_metrics[1]
        elif self.mode == ModeKeys.EVAL and spec.eval_metric_ops is not None:
            sent["totals"] = {name: m.totals for name, m in spec.eval_metric_ops.items()}
        return sent

    def _check_labels(self, labels: Tree) -> None:
        if labels is not None and not self.function.takes("labels"):
            raise check.refuse(
                "model_fn does not take labels, but the data set has them",
                "take `labels`, or give features alone",
            )

    def _checked(self, spec: Any) -> IPUEstimatorSpec:
        if not isinstance(spec, IPUEstimatorSpec):
            raise check.refuse(
                f"model_fn returns {spec!r}", "return an IPUEstimatorSpec(mode, ...)"
            )
        if spec.mode != self.mode:
            raise check.refuse(
                f"model_fn was called with mode {self.mode!r}, and its IPUEstimatorSpec has "
                f"{spec.mode!r}",
                "hand the mode on: IPUEstimatorSpec(mode, ...)",
            )
        return spec


class FunctionMode(Mode):
    """What an `IPUEstimator` does in one mode.

    Args:
      mode: a `ModeKeys`.
      function: the `model_fn`.
      settings: of the estimator.
    """

    step_size = 1

    def __init__(self, mode: str, function: ByName, settings: Settings):
        super().__init__(mode, settings)
        fixed = {"params": settings.params_of(mode), "config": settings.config}
        self._model = FunctionModel(function, mode, fixed, settings.seed, self.workers)
        self._form: Hashable = None
        self._inputs = _step_of if function.takes("global_step") else None

    def prepared(self, state: TrainState, element: Tree) -> TrainState:
        """As `Mode.prepared`."""
        self._form = form_of(*body_arguments(element))
        carried = dc.replace(state, state=Untrained(state.state, jnp.int32(state.step)))
        if self.mode != ModeKeys.TRAIN:
            self.loop = self.loop or Inference(self._model, **self._options)
            return carried
        if self.loop is None:
            self._trace(carried, element)
            self.loop = Training(
                self._model,
                self._model.optimizer(self._spec),
                replica_reduction=ReplicaReduction.NONE,
                **self._options,
            )
        if state.optimizer_state is not None:
            return carried
        optimizer_state = initial_state(self._spec.train_op, state.variables)
        return dc.replace(carried, optimizer_state=optimizer_state)

    def users(self, state: TrainState) -> TrainState:
        """As `Mode.users`."""
        return dc.replace(state, state=state.state.state)

    @property
    def hooks(self) -> Sequence[SessionRunHook]:
        """As `Mode.hooks`."""
        return self._spec.hooks

    def after_run(self, run: Run, results: Tree) -> None:
        """Calls the function of the host, if there is one."""
        call = self._spec.host_call
        if self.mode == ModeKeys.TRAIN and call is not None:
            arrays = [array[0] for array in results["host_call"]]
            if call[0](*arrays) is None:
                raise check.refuse_type(
                    "the function of host_call returned None",
                    "return something, such as the first of its arguments",
                )

    def loss(self, results: Tree) -> float:
        """As `Mode.loss`."""
        return float(np.mean(results["loss"], dtype=np.float64))

    def score(self, results: Tree, replicas: int, scores: Scores) -> None:
        """As `Mode.score`."""
        scores.add_loss(results["loss"])
        axes = (0, 1) if replicas > 1 else (0,)
        if self._spec.eval_metrics is None:
            metrics = self._spec.eval_metric_ops or {}
            totals = results.get("totals", {})
            scores.add({n: dc.replace(m, totals=totals[n]) for n, m in metrics.items()}, axes)
            return
        function, _ = self._spec.eval_metrics
        for tensors in unstacked(results["tensors"], len(axes)):
            named = isinstance(tensors, dict)
            metrics = metrics_of(function(**tensors) if named else function(*tensors))
            check_metric_names(metrics, RESERVED_METRICS)
            scores.add(metrics)

    def predictions(self, sent: Tree) -> Tree:
        """As `Mode.predictions`."""
        return sent

    def function(self, state: TrainState) -> Callable[..., Tree]:
        """As `Mode.function`."""
        inputs = () if self._inputs is None else self._inputs(state)
        untrained = Untrained(state.state, jnp.int32(state.step))

        def step(*element: Tree, **by_name: Tree) -> Tree:
            return self._model(state.variables, untrained, *inputs, *element, **by_name).send

        return step

    @property
    def _options(self) -> dict[str, Any]:
        run = self.settings.config.ipu_run_config
        return self.options | {
            "inputs": self._inputs,
            "steps_per_loop": run.iterations_per_loop,
        }

    @property
    def _spec(self) -> IPUEstimatorSpec:
        return self._model.specs[self._form]

    def _trace(self, state: TrainState, element: Tree) -> None:
        """Finds what the spec has besides arrays."""
        args, named = body_arguments(element)
        inputs = () if self._inputs is None else self._inputs(state)

        def model_fn(*args: Tree, **named: Tree) -> Tree:
            return self._model(*args, **named).send

        compile(model_fn, device=self.options["device"]).trace(
            state.variables, state.state, *inputs, *args, **named
        )
        per_loop = self.settings.config.ipu_run_config.iterations_per_loop
        if self._spec.host_call is not None and per_loop > 1:
            raise check.refuse(
                f"host_call needs iterations_per_loop=1, and it is {per_loop}: a device loop "
                "does not stop for the host",
                "set iterations_per_loop=1 in IPURunConfig",
            )


def form_of(args: Sequence[Tree], named: Mapping[str, Tree]) -> Hashable:
    """What of an element decides what a trace of it gives: structure and shapes."""
    leaves, structure = jax.tree.flatten((list(args), dict(named)))
    return structure, tuple(np.shape(leaf) for leaf in leaves)


def _step_of(state: TrainState) -> tuple[int]:
    return (state.step,)
