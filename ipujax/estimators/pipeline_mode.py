"""A mode of an estimator whose model is a pipeline."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ipujax.errors import InternalError
from ipujax.estimators.checks import check, check_metric_names
from ipujax.estimators.hooks import SessionRunHook
from ipujax.estimators.mode import Mode, Settings
from ipujax.estimators.model_fn import ByName
from ipujax.estimators.pipeline_spec import IPUPipelineEstimatorSpec
from ipujax.estimators.scores import LOSS, Scores, loss_of, metrics_of, unstacked
from ipujax.estimators.spec import ModeKeys
from ipujax.metrics import Metric
from ipujax.optimizers.trained_leaves import initial_state
from ipujax.pipelines.arguments import OptimizerFunctionOutput
from ipujax.training import Inference, Pipeline, ReplicaReduction, Training, TrainState
from ipujax.training.state import Tree


class PipelineMode(Mode):
    """What an `IPUPipelineEstimator` does in one mode.

    Args:
      mode: a `ModeKeys`.
      function: the `model_fn`.
      settings: of the estimator.
    """

    def __init__(self, mode: str, function: ByName, settings: Settings):
        super().__init__(mode, settings)
        self._function = function
        self._spec = self._called(0)
        self.step_size = self._spec.gradient_accumulation_count
        self._check_iterations()
        self._optimizers: list[Any] = []

    def prepared(self, state: TrainState, element: Tree) -> TrainState:
        """As `Mode.prepared`."""
        if self.loop is None:
            self.loop = self._made()
        if self.mode != ModeKeys.TRAIN or state.optimizer_state is not None:
            return state
        if not self._optimizers:  # nobody knows it before the stages were traced
            self.loop.trace(state, [element], 1)
        optimizer_state = initial_state(self._optimizers[-1], state.variables)
        return dc.replace(state, optimizer_state=optimizer_state)

    def users(self, state: TrainState) -> TrainState:
        """As `Mode.users`."""
        return state

    @property
    def hooks(self) -> Sequence[SessionRunHook]:
        """As `Mode.hooks`: none."""
        return ()

    def loss(self, results: Tree) -> float:
        """As `Mode.loss`: what is sent are sums over the micro-batches."""
        return float(np.mean(results, dtype=np.float64)) / self.step_size

    def score(self, results: Tree, replicas: int, scores: Scores) -> None:
        """As `Mode.score`."""
        function = self._spec.eval_metrics_fn
        if function is None:
            raise InternalError("an evaluation without eval_metrics_fn")
        for outputs in unstacked(results, 1 + (replicas > 1)):
            by_name = len(outputs) == 1 and isinstance(outputs[0], dict)
            returned: Any = function(**outputs[0]) if by_name else function(*outputs)
            metrics = dict(check.instance(returned, dict, "what eval_metrics_fn returns"))
            if LOSS not in metrics:
                raise check.refuse(
                    f"eval_metrics_fn returns {sorted(metrics)}, without {LOSS!r}",
                    "return the loss, an array, among the metrics",
                )
            check_metric_names(metrics, ("global_step",))
            scores.add_loss(loss_of(metrics[LOSS]))
            if not isinstance(metrics[LOSS], Metric):
                del metrics[LOSS]
            scores.add(metrics_of(metrics))

    def predictions(self, sent: Tree) -> Tree:
        """As `Mode.predictions`."""
        if len(sent) != 1:
            raise check.refuse(
                f"the last stage predicts {len(sent)} arrays", "return exactly one, or a dict"
            )
        return sent[0]

    def function(self, state: TrainState) -> Callable[..., Tree]:
        """As `Mode.function`."""
        spec = self._spec
        stages, inputs = Pipeline(spec.computational_stages, spec.options), self._inputs(state)

        def forward(*element: Tree, **by_name: Tree) -> Tree:
            outputs = stages.forward(state.variables, state.state, *inputs, *element, **by_name)
            return self.predictions(outputs) if self.mode == ModeKeys.PREDICT else outputs

        return forward

    # --- the program ----------------------------------------------------------------------------

    def _called(self, step: int) -> IPUPipelineEstimatorSpec:
        """What `model_fn` returns for a global step."""
        settings = self.settings
        spec: object = self._function(
            mode=self.mode,
            params=settings.params_of(self.mode),
            config=settings.config,
            global_step=np.int32(step),
        )
        if not isinstance(spec, IPUPipelineEstimatorSpec):
            raise check.refuse_type(
                f"model_fn returns {spec!r:.80}", "return an IPUPipelineEstimatorSpec"
            )
        run = settings.config.ipu_run_config
        if not run.num_shards / 2 < spec.devices <= run.num_shards:
            raise check.refuse(
                f"the pipeline needs {spec.devices} IPUs, and num_shards of IPURunConfig is "
                f"{run.num_shards}",
                "set num_shards to the number of IPUs, rounded up to a power of two",
            )
        return spec

    def _check_iterations(self) -> None:
        per_loop, count = self.settings.config.ipu_run_config.iterations_per_loop, self.step_size
        if per_loop < count or per_loop % count:
            wrong = "is less than" if per_loop < count else "is no multiple of"
            raise check.refuse(
                f"iterations_per_loop is {per_loop}, which {wrong} gradient_accumulation_count, "
                f"{count}",
                f"set iterations_per_loop to a multiple of {count}",
            )

    def _made(self) -> Training | Inference:
        spec = self._spec
        options: dict[str, Any] = self.options | {
            "accumulation": self.step_size,
            "steps_per_loop": (
                self.settings.config.ipu_run_config.iterations_per_loop // self.step_size
            ),
            "inputs": self._inputs,
        }
        if self.mode != ModeKeys.TRAIN:
            return Inference(Pipeline(spec.computational_stages, spec.options), **options)
        sums = {
            "outfeed_loss": True,
            "accumulate_outfeed": True,
            "accumulate_outfeed_dtype": spec.loss_accumulator_dtype,
        }
        stages = Pipeline(spec.computational_stages, spec.options | sums)
        reduction = ReplicaReduction.NONE
        return Training(stages, self._optimizer_function, replica_reduction=reduction, **options)

    def _inputs(self, state: TrainState) -> Sequence[Any]:
        spec = self._called(state.step) if self._function.takes("global_step") else self._spec
        return spec.inputs

    def _optimizer_function(self, *outputs: Tree) -> OptimizerFunctionOutput:
        function = self._spec.optimizer_function
        if function is None:
            raise InternalError("a training without optimizer_function")
        made = function(*outputs)
        made.opt = self.workers.summing(made.opt)
        self._optimizers = [made.opt]
        return made
