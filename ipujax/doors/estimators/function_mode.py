"""A mode of an estimator whose model is one function."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.estimators.estimator_checks import check, check_metric_names
from ipujax.doors.estimators.estimator_mode import EstimatorMode, EstimatorSettings
from ipujax.doors.estimators.estimator_spec import RESERVED_METRICS, IPUEstimatorSpec, ModeKeys
from ipujax.doors.estimators.metric_totals import MetricTotals, check_returned_metrics, unstack_tree
from ipujax.doors.estimators.model_fn import (
    FunctionByName,
    features_and_labels,
    split_element_arguments,
)
from ipujax.doors.estimators.session_hooks import SessionRunHook
from ipujax.doors.estimators.workers import Workers
from ipujax.driver import compile
from ipujax.ground import Keywords, structure_text
from ipujax.operators import replication_index
from ipujax.optimizers import init_optimizer_state
from ipujax.training import Inference, ReplicaReduction, Run, StepOutput, Training, TrainState, Tree


class Untrained(NamedTuple):
    """The untrained state, as the device loops carry it.

    Attributes:
      state: the user's untrained state.
      number: the number of the step, int32, from which the step's key is made.
    """

    state: Tree
    number: jax.Array


@dc.dataclass
class FunctionModel:
    """A `model_fn` as a model of `training`, in one mode.

    Attributes:
      function: the `model_fn`.
      mode: a `ModeKeys`.
      fixed: the values of `params` and `config`.
      seed: the seed of the keys.
      workers: the workers that train the model together.
      specs: the specs of traces by the form of the element, without their arrays: hooks, functions
        of the host.
    """

    function: FunctionByName
    mode: str
    fixed: dict[str, Any]
    seed: int
    workers: Workers
    specs: dict[Hashable, IPUEstimatorSpec] = dc.field(default_factory=dict)

    def __call__(
        self, variables: Tree, untrained: Untrained, *element: Tree, **by_name: Tree
    ) -> StepOutput:
        """Calls `model_fn` for one element, as a model of `training`."""
        values: dict[str, Any] = {"mode": self.mode, "state": untrained.state, **self.fixed}
        if self.function.takes("global_step"):
            values["global_step"], element = element[0], element[1:]
        if self.function.takes("key"):
            key = jax.random.fold_in(jax.random.key(self.seed), untrained.number)
            values["key"] = jax.random.fold_in(key, replication_index())
        values["features"], values["labels"] = features_and_labels(element, by_name)
        self._check_labels(values["labels"])
        spec = self._check_spec(self.function(variables, **values))
        state = spec.state
        if state is None:
            state = untrained.state
        elif jax.tree.structure(state) != jax.tree.structure(untrained.state):
            raise check.value_error(
                "the state of the IPUEstimatorSpec is "
                f"{structure_text(jax.tree.structure(state))}, that of init_fn "
                f"{structure_text(jax.tree.structure(untrained.state))}",
                "return state of the structure that init_fn gave as the second of its results",
            )
        self.specs[element_form(element, by_name)] = spec.without_arrays()
        values_to_send = self._values_to_send(spec)
        new_untrained = Untrained(state, untrained.number + 1)
        return StepOutput(spec.loss, values_to_send, new_untrained, self.optimizer_of_spec(spec))

    def optimizer_of_spec(self, spec: IPUEstimatorSpec) -> Any:
        """Returns the optimizer of a spec; None where nothing is trained."""
        return spec.train_op and self.workers.wrap_with_summation(spec.train_op)

    def _values_to_send(self, spec: IPUEstimatorSpec) -> Tree:
        if self.mode == ModeKeys.PREDICT:
            return spec.predictions
        values: dict[str, Tree] = {"loss": spec.loss}
        if self.mode == ModeKeys.TRAIN and spec.host_call is not None:
            values["host_call"] = spec.host_call[1]
        elif self.mode == ModeKeys.EVAL and spec.eval_metrics is not None:
            values["tensors"] = spec.eval_metrics[1]
        elif self.mode == ModeKeys.EVAL and spec.eval_metric_ops is not None:
            values["totals"] = {name: m.totals for name, m in spec.eval_metric_ops.items()}
        return values

    def _check_labels(self, labels: Tree) -> None:
        if labels is not None and not self.function.takes("labels"):
            raise check.value_error(
                "model_fn does not take labels, but the data set has them",
                "take `labels`, or give features alone",
            )

    def _check_spec(self, spec: object) -> IPUEstimatorSpec:
        if not isinstance(spec, IPUEstimatorSpec):
            raise check.value_error(
                f"model_fn returns {spec!r}", "return an IPUEstimatorSpec(mode, ...)"
            )
        if spec.mode != self.mode:
            raise check.value_error(
                f"model_fn was called with mode {self.mode!r}, and its IPUEstimatorSpec has "
                f"{spec.mode!r}",
                "hand the mode on: IPUEstimatorSpec(mode, ...)",
            )
        return spec


class FunctionMode(EstimatorMode):
    """The mode of an `IPUEstimator`, whose model is one function.

    Args:
      mode: a `ModeKeys`.
      function: the `model_fn`.
      settings: the settings of the estimator.
    """

    step_size = 1

    def __init__(self, mode: str, function: FunctionByName, settings: EstimatorSettings):
        super().__init__(mode, settings)
        fixed = {"params": settings.params_of(mode), "config": settings.config}
        self._model = FunctionModel(function, mode, fixed, settings.key_seed, self.workers)
        self._form: Hashable = None
        self._inputs = _step_input if function.takes("global_step") else None

    def prepare_loop_state(self, state: TrainState, element: Tree) -> TrainState:
        """Makes the loop, unless there is one; returns the state that it carries."""
        self._form = element_form(*split_element_arguments(element))
        loop_state = dc.replace(state, state=Untrained(state.state, jnp.int32(state.step)))
        if self.mode != ModeKeys.TRAIN:
            self.loop = self.loop or Inference(self._model, **self._function_loop_options)
            return loop_state
        if self.loop is None:
            self._trace_spec(loop_state, element)
            self.loop = Training(
                self._model,
                self._model.optimizer_of_spec(self._spec_of_trace),
                replica_reduction=ReplicaReduction.NONE,
                **self._function_loop_options,
            )
        if state.optimizer_state is not None:
            return loop_state
        optimizer_state = init_optimizer_state(self._spec_of_trace.train_op, state.variables)
        return dc.replace(loop_state, optimizer_state=optimizer_state)

    def to_user_state(self, state: TrainState) -> TrainState:
        """Returns the state of the loop without the number of the step."""
        return dc.replace(state, state=state.state.state)

    @property
    def model_hooks(self) -> Sequence[SessionRunHook]:
        """The hooks of the traced spec."""
        return self._spec_of_trace.hooks

    def after_run(self, run: Run, results: Tree) -> None:
        """Calls the host function of the spec, if there is one."""
        call = self._spec_of_trace.host_call
        if self.mode == ModeKeys.TRAIN and call is not None:
            arrays = [array[0] for array in results["host_call"]]
            if call[0](*arrays) is None:
                raise check.type_error(
                    "the function of host_call returned None",
                    "return something, such as the first of its arguments",
                )

    def mean_loss(self, results: Tree) -> float:
        """Returns the mean loss over steps and replicas."""
        return float(np.mean(results["loss"], dtype=np.float64))

    def add_to_totals(self, results: Tree, replicas: int, scores: MetricTotals) -> None:
        """Adds the losses and metrics of a device loop of evaluation."""
        scores.add_loss(results["loss"])
        axes = (0, 1) if replicas > 1 else (0,)
        if self._spec_of_trace.eval_metrics is None:
            metrics = self._spec_of_trace.eval_metric_ops or {}
            totals = results.get("totals", {})
            scores.add_metrics(
                {n: dc.replace(m, totals=totals[n]) for n, m in metrics.items()}, axes
            )
            return
        function, _ = self._spec_of_trace.eval_metrics
        for tensors in unstack_tree(results["tensors"], len(axes)):
            is_by_name = isinstance(tensors, dict)
            metrics = check_returned_metrics(
                function(**tensors) if is_by_name else function(*tensors)
            )
            check_metric_names(metrics, RESERVED_METRICS)
            scores.add_metrics(metrics)

    def select_predictions(self, sent: Tree) -> Tree:
        """Returns the predictions, which the loop sends as they are."""
        return sent

    def build_serving_function(self, state: TrainState) -> Callable[..., Tree]:
        """Returns one step of the model as a function of an element alone."""
        inputs = () if self._inputs is None else self._inputs(state)
        untrained = Untrained(state.state, jnp.int32(state.step))

        def serve_element(*element: Tree, **by_name: Tree) -> Tree:
            return self._model(state.variables, untrained, *inputs, *element, **by_name).send

        return serve_element

    @property
    def _function_loop_options(self) -> Keywords:
        run = self.settings.config.ipu_run_config
        return self.device_loop_options | {
            "inputs": self._inputs,
            "steps_per_loop": run.iterations_per_loop,
        }

    @property
    def _spec_of_trace(self) -> IPUEstimatorSpec:
        return self._model.specs[self._form]

    def _trace_spec(self, state: TrainState, element: Tree) -> None:
        """Traces the model to find the parts of its spec that are no arrays."""
        args, keyword_arguments = split_element_arguments(element)
        inputs = () if self._inputs is None else self._inputs(state)

        def model_fn(*args: Tree, **named: Tree) -> Tree:
            return self._model(*args, **named).send

        compile(model_fn, device=self.device_loop_options["device"]).trace(
            state.variables, state.state, *inputs, *args, **keyword_arguments
        )
        per_loop = self.settings.config.ipu_run_config.iterations_per_loop
        if self._spec_of_trace.host_call is not None and per_loop > 1:
            raise check.value_error(
                f"host_call needs iterations_per_loop=1, and it is {per_loop}: a device loop "
                "does not stop for the host",
                "set iterations_per_loop=1 in IPURunConfig",
            )


def element_form(args: Sequence[Tree], keyword_arguments: Mapping[str, Tree]) -> Hashable:
    """Returns the structure and shapes of an element, which decide the result of a trace."""
    leaves, structure = jax.tree.flatten((list(args), dict(keyword_arguments)))
    return structure, tuple(np.shape(leaf) for leaf in leaves)


def _step_input(state: TrainState) -> tuple[int]:
    return (state.step,)
