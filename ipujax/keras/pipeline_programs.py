"""A Keras model's training, evaluation and prediction as pipelines.

The forward pass, the loss and the metrics are one JAX function. Its equations carry the marks of
the stages that layers were assigned to, and it is cut at these marks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax

from ipujax.doors.keras import import_keras
from ipujax.ground import PyTree
from ipujax.keras.keras_batches import Batches
from ipujax.keras.keras_checks import check, check_step_not_overridden
from ipujax.keras.keras_gradients import SplitTrainStep
from ipujax.keras.keras_programs import KerasProgram
from ipujax.keras.program_mode import Arrays, State
from ipujax.keras.stage_tracing import trace_in_stages
from ipujax.pipelines import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    ScheduleError,
    StageOutput,
    find_schedule,
    schedules,
)
from ipujax.training import Inference, Pipeline, Training, TrainState, Tree

if TYPE_CHECKING:
    import keras

NamedArrays = dict[str, jax.Array]

_INFERENCE_OPTIONS = (
    "device_mapping", "forward_propagation_stages_poplar_options", "offload_weights",
    "replicated_weight_sharding", "name",
)  # fmt: skip


class PipelinedTraining(KerasProgram):
    """The program that trains a Keras model as a pipeline."""

    def build_loop(self, micro_batches: int) -> Training:
        """Builds a device loop of pipelined training."""
        mode, model = self.mode, self.mode.model
        check_step_not_overridden(model, "train_step")
        is_scaled, update = _has_loss_scaling(model), SplitTrainStep(model)
        forward_pass = mode.untrained_reductions.offset_random_draws(self._run_forward_pass)
        by_name = update.as_optax_optimizer(mode.key_by_name, mode.list_by_name)

        def compute_stage_outputs(
            trained: NamedArrays, state: tuple[Arrays, Arrays], *inputs: Arrays, batch: PyTree
        ) -> StageOutput:
            optimizer = inputs[0] if is_scaled else []
            non_trainable, (outputs, metrics) = forward_pass(
                state[0], trained, state[1], optimizer, batch
            )
            return StageOutput(outputs, (non_trainable, metrics))

        def make_optimizer_output(loss: jax.Array, *_: Tree) -> OptimizerFunctionOutput:
            return OptimizerFunctionOutput(by_name, loss)

        options = {**mode.pipeline}
        dtype = options.pop("gradient_accumulation_dtype", None)
        return Training(
            Pipeline(compute_stage_outputs, options, count=mode.stages, shares_variables=True),
            make_optimizer_output,
            accumulation=micro_batches,
            accumulation_dtype=dtype,
            inputs=(lambda state: [state.optimizer_state]) if is_scaled else None,
            **self.training_options,
        )

    def _run_forward_pass(
        self,
        non_trainable: Arrays,
        trained: NamedArrays,
        metrics: Arrays,
        optimizer: Arrays,
        batch: PyTree,
    ) -> tuple[Arrays, Tree]:
        """Computes the outputs of the last stage, the loss and the metrics of a batch."""
        model = self.mode.model
        data = import_keras().utils.unpack_x_y_sample_weight(batch)
        with trace_in_stages(model):
            loss, (unscaled, predicted, non_trainable, metrics) = model.compute_loss_and_updates(
                self.mode.list_by_name(trained),
                non_trainable,
                metrics,
                *data,
                training=True,
                optimizer_variables=optimizer,
            )
        logs, metrics = model._update_metrics_variables(
            metrics, unscaled, data[0], data[1], predicted, data[2]
        )
        return non_trainable, ([loss, logs], metrics)

    def run_execution(self, state: State, batches: Batches, max_batches: int) -> tuple[Tree, State]:
        """Runs one execution as a pipeline; refuses micro-batches that do not fit the schedule.

        Raises:
          KerasError: (a `ValueError`) besides, a schedule that these micro-batches do not fit.
        """
        try:
            return super().run_execution(state, batches, max_batches)
        except ScheduleError as error:
            steps = f"gradient_accumulation_steps_per_replica={self.mode.accumulation}"
            raise check.value_error(
                f"model {self.mode.model.name!r} cannot be pipelined with {steps}: {error.summary}",
                f"set_pipelining_options with other values; for its schedule, {error.fix}",
            ) from error

    def count_steps_and_micro_batches(self, batches: int) -> tuple[int, int]:
        """Returns steps and micro-batches; one step per device loop if the loss is scaled."""
        steps, micro_batches = super().count_steps_and_micro_batches(batches)
        return (1 if _has_loss_scaling(self.mode.model) else steps), micro_batches

    def to_loop_state(self, state: State) -> TrainState:
        """Returns Keras's state as the state of the training loop."""
        trainable, non_trainable, optimizer, metrics = state
        return TrainState(self.mode.key_by_name(trainable), optimizer, (non_trainable, metrics))

    def to_keras_state(self, loop_state: TrainState) -> State:
        """Returns the training loop's state as Keras's state."""
        non_trainable, metrics = loop_state.state
        return (
            self.mode.list_by_name(loop_state.variables),
            non_trainable,
            loop_state.optimizer_state,
            metrics,
        )

    def select_outputs(self, results: Tree) -> Tree:
        """Returns the logs of the training step; the loss beside them is for the optimizer."""
        return results[1]


class PipelinedInference(KerasProgram):
    """The program that evaluates or predicts with a Keras model as a pipeline."""

    def build_loop(self, micro_batches: int) -> Inference:
        """Builds a device loop of pipelined evaluation or prediction."""
        mode = self.mode
        check_step_not_overridden(mode.model, f"{mode.kind}_step")
        forward_pass = mode.untrained_reductions.offset_random_draws(self._run_forward_pass)

        def compute_stage_outputs(
            trained: NamedArrays, state: tuple[Arrays, Arrays], batch: PyTree
        ) -> StageOutput:
            non_trainable, (outputs, metrics) = forward_pass(state[0], trained, state[1], batch)
            return StageOutput([outputs], (non_trainable, metrics))

        options = {
            name: value for name, value in mode.pipeline.items() if name in _INFERENCE_OPTIONS
        }
        asked = mode.pipeline.get("pipeline_schedule", PipelineSchedule.Grouped)
        chosen = find_schedule(asked, "pipeline_schedule", check)
        # The forward passes of GPipe fit any number of micro-batches.
        is_sequential = chosen is PipelineSchedule.Sequential
        options["pipeline_schedule"] = chosen if is_sequential else schedules.gpipe
        pipeline = Pipeline(
            compute_stage_outputs, options, count=mode.stages, shares_variables=True
        )
        return Inference(pipeline, accumulation=micro_batches, **self.loop_options)

    def _run_forward_pass(
        self, non_trainable: Arrays, trained: NamedArrays, metrics: Arrays, batch: PyTree
    ) -> tuple[Arrays, Tree]:
        """Computes the outputs of Keras's step for a batch, and metrics."""
        model, state = self.mode.model, (self.mode.list_by_name(trained), non_trainable)
        with trace_in_stages(model):
            if self.mode.kind == "test":
                outputs, (_, non_trainable, metrics) = model.test_step((*state, metrics), batch)
            else:
                outputs, non_trainable = model.predict_step(state, batch)
        return non_trainable, (outputs, metrics)

    def count_steps_and_micro_batches(self, batches: int) -> tuple[int, int]:
        """Returns one step of all the batches that a replica has."""
        return 1, batches // self.mode.replicas

    def to_loop_state(self, state: State) -> TrainState:
        """Returns Keras's state as the state of the inference loop."""
        trainable, non_trainable, *metrics = state
        return TrainState(
            self.mode.key_by_name(trainable), state=(non_trainable, metrics[0] if metrics else [])
        )

    def to_keras_state(self, loop_state: TrainState) -> State:
        """Returns the inference loop's state as Keras's state."""
        non_trainable, metrics = loop_state.state
        trainable = self.mode.list_by_name(loop_state.variables)
        return (
            (trainable, non_trainable, metrics)
            if self.mode.kind == "test"
            else (trainable, non_trainable)
        )

    def select_outputs(self, results: Tree) -> Tree:
        """Returns the step's outputs: the last stage sends them as one value."""
        return results[0]


def _has_loss_scaling(model: keras.Model) -> bool:
    """Returns whether the optimizer scales the loss by a factor that changes between updates."""
    return isinstance(model.optimizer, import_keras().optimizers.LossScaleOptimizer)
