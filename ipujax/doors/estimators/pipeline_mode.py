"""A mode of an estimator whose model is a pipeline."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ipujax.doors.estimators.estimator_checks import check, check_metric_names
from ipujax.doors.estimators.estimator_mode import EstimatorMode, EstimatorSettings
from ipujax.doors.estimators.estimator_spec import ModeKeys
from ipujax.doors.estimators.metric_totals import (
    LOSS,
    MetricTotals,
    check_returned_metrics,
    parse_loss,
    unstack_tree,
)
from ipujax.doors.estimators.model_fn import FunctionByName
from ipujax.doors.estimators.pipeline_spec import IPUPipelineEstimatorSpec
from ipujax.doors.estimators.session_hooks import SessionRunHook
from ipujax.ground import InternalError, PyTree
from ipujax.operators import Metric
from ipujax.optimizers import init_optimizer_state
from ipujax.pipelines import OptimizerFunctionOutput, call_optimizer_function
from ipujax.training import Inference, Pipeline, ReplicaReduction, Training, TrainState, Tree


class PipelineMode(EstimatorMode):
    """The mode of an `IPUPipelineEstimator`, whose model is a pipeline.

    Args:
      mode: a `ModeKeys`.
      function: the `model_fn`.
      settings: the settings of the estimator.
    """

    def __init__(self, mode: str, function: FunctionByName, settings: EstimatorSettings):
        super().__init__(mode, settings)
        self._function = function
        self._spec = self._call_model_fn(0)
        self.step_size = self._spec.gradient_accumulation_count
        self._check_iterations()
        self._optimizers: list[Any] = []

    def prepare_loop_state(self, state: TrainState, element: Tree) -> TrainState:
        """Makes the loop, unless there is one; returns the state with optimizer state."""
        if self.loop is None:
            self.loop = self._build_loop()
        if self.mode != ModeKeys.TRAIN or state.optimizer_state is not None:
            return state
        if not self._optimizers:  # the optimizer is known once the stages were traced
            self.loop.trace(state, [element], 1)
        optimizer_state = init_optimizer_state(self._optimizers[-1], state.variables)
        return dc.replace(state, optimizer_state=optimizer_state)

    def to_user_state(self, state: TrainState) -> TrainState:
        """Returns the state of the loop, which is the user's."""
        return state

    @property
    def model_hooks(self) -> Sequence[SessionRunHook]:
        """The hooks of a pipelined model: none."""
        return ()

    def mean_loss(self, results: Tree) -> float:
        """Returns the mean loss, from sums over the micro-batches."""
        return float(np.mean(results, dtype=np.float64)) / self.step_size

    def add_to_totals(self, results: Tree, replicas: int, scores: MetricTotals) -> None:
        """Adds the losses and metrics of a device loop of evaluation."""
        function = self._spec.eval_metrics_fn
        if function is None:
            raise InternalError("an evaluation without eval_metrics_fn")
        for outputs in unstack_tree(results, 1 + (replicas > 1)):
            is_by_name = len(outputs) == 1 and isinstance(outputs[0], dict)
            returned: Any = function(**outputs[0]) if is_by_name else function(*outputs)
            metrics = dict(check.require_instance(returned, dict, "what eval_metrics_fn returns"))
            if LOSS not in metrics:
                raise check.value_error(
                    f"eval_metrics_fn returns {sorted(metrics)}, without {LOSS!r}",
                    "return the loss, an array, among the metrics",
                )
            check_metric_names(metrics, ("global_step",))
            scores.add_loss(parse_loss(metrics[LOSS]))
            if not isinstance(metrics[LOSS], Metric):
                del metrics[LOSS]
            scores.add_metrics(check_returned_metrics(metrics))

    def select_predictions(self, sent: Tree) -> Tree:
        """Returns the one value that the last stage predicts."""
        if len(sent) != 1:
            raise check.value_error(
                f"the last stage predicts {len(sent)} arrays", "return exactly one, or a dict"
            )
        return sent[0]

    def build_serving_function(self, state: TrainState) -> Callable[..., Tree]:
        """Returns all stages as a function of an element alone."""
        spec = self._spec
        pipeline, inputs = (
            Pipeline(spec.computational_stages, spec.options),
            self._first_stage_inputs(state),
        )

        def run_all_stages(*element: Tree, **by_name: Tree) -> Tree:
            outputs = pipeline.forward(state.variables, state.state, *inputs, *element, **by_name)
            return self.select_predictions(outputs) if self.mode == ModeKeys.PREDICT else outputs

        return run_all_stages

    # --- the program ----------------------------------------------------------------------------

    def _call_model_fn(self, step: int) -> IPUPipelineEstimatorSpec:
        """Returns the spec that `model_fn` returns for a global step."""
        settings = self.settings
        spec: object = self._function(
            mode=self.mode,
            params=settings.params_of(self.mode),
            config=settings.config,
            global_step=np.int32(step),
        )
        if not isinstance(spec, IPUPipelineEstimatorSpec):
            raise check.type_error(
                f"model_fn returns {spec!r:.80}", "return an IPUPipelineEstimatorSpec"
            )
        run_config = settings.config.ipu_run_config
        if not run_config.num_shards / 2 < spec.devices <= run_config.num_shards:
            raise check.value_error(
                f"the pipeline needs {spec.devices} IPUs, and num_shards of IPURunConfig is "
                f"{run_config.num_shards}",
                "set num_shards to the number of IPUs, rounded up to a power of two",
            )
        return spec

    def _check_iterations(self) -> None:
        per_loop, count = self.settings.config.ipu_run_config.iterations_per_loop, self.step_size
        if per_loop < count or per_loop % count:
            wrong = "is less than" if per_loop < count else "is no multiple of"
            raise check.value_error(
                f"iterations_per_loop is {per_loop}, which {wrong} gradient_accumulation_count, "
                f"{count}",
                f"set iterations_per_loop to a multiple of {count}",
            )

    def _build_loop(self) -> Training | Inference:
        spec = self._spec
        options: dict[str, Any] = self.device_loop_options | {
            "accumulation": self.step_size,
            "steps_per_loop": (
                self.settings.config.ipu_run_config.iterations_per_loop // self.step_size
            ),
            "inputs": self._first_stage_inputs,
        }
        if self.mode != ModeKeys.TRAIN:
            return Inference(Pipeline(spec.computational_stages, spec.options), **options)
        loss_options = {
            "outfeed_loss": True,
            "accumulate_outfeed": True,
            "accumulate_outfeed_dtype": spec.loss_accumulator_dtype,
        }
        pipeline = Pipeline(spec.computational_stages, spec.options | loss_options)
        reduction = ReplicaReduction.NONE
        return Training(pipeline, self._optimizer_function, replica_reduction=reduction, **options)

    def _first_stage_inputs(self, state: TrainState) -> Sequence[PyTree]:
        spec = (
            self._call_model_fn(state.step) if self._function.takes("global_step") else self._spec
        )
        return spec.inputs

    def _optimizer_function(self, *outputs: Tree) -> OptimizerFunctionOutput:
        function = self._spec.optimizer_function
        if function is None:
            raise InternalError("a training without optimizer_function")
        output = call_optimizer_function(function, outputs)
        output.opt = self.workers.wrap_with_summation(output.opt)
        self._optimizers = [output.opt]
        return output
