"""A Keras model's steps as a pipeline.

The forward pass, the loss and the metrics are one JAX function. Its equations carry the marks of
the stages that layers were assigned to, and it is cut where these say.
"""

from __future__ import annotations

from typing import Any

import jax

from ipujax import schedules
from ipujax.frontends.keras_backend import keras
from ipujax.keras.batches import Batches
from ipujax.keras.checks import check, check_own
from ipujax.keras.gradients import Update
from ipujax.keras.mode import Arrays, State
from ipujax.keras.programs import Program
from ipujax.keras.staged import staged
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, StageOutput
from ipujax.schedules import ScheduleError
from ipujax.training import Inference, Pipeline, Training, TrainState
from ipujax.training.state import Tree

Named = dict[str, jax.Array]

_OF_INFERENCE = (
    "device_mapping", "forward_propagation_stages_poplar_options", "offload_weights",
    "replicated_weight_sharding", "name",
)  # fmt: skip


class PipelinedTraining(Program):
    """Training as a pipeline."""

    def made_loop(self, micro_batches: int) -> Training:
        """As `Program.made_loop`."""
        mode, model = self.mode, self.mode.model
        check_own(model, "train_step")
        is_scaled, update = _scales_loss(model), Update(model)
        apart = mode.untrained.drawing_apart(self._pass)
        by_name = update.optimizer(mode.named, mode.unnamed)

        def forward(
            trained: Named, state: tuple[Arrays, Arrays], *inputs: Arrays, batch: Any
        ) -> StageOutput:
            optimizer = inputs[0] if is_scaled else []
            kept, (outputs, metrics) = apart(state[0], trained, state[1], optimizer, batch)
            return StageOutput(outputs, (kept, metrics))

        def optimizer(loss: jax.Array, *_: Tree) -> OptimizerFunctionOutput:
            return OptimizerFunctionOutput(by_name, loss)

        options = {**mode.pipeline}
        dtype = options.pop("gradient_accumulation_dtype", None)
        return Training(
            Pipeline(forward, options, count=mode.stages),
            optimizer,
            accumulation=micro_batches,
            accumulation_dtype=dtype,
            inputs=(lambda state: [state.optimizer_state]) if is_scaled else None,
            **self.training_options,
        )

    def _pass(
        self, kept: Arrays, trained: Named, metrics: Arrays, optimizer: Arrays, batch: Any
    ) -> tuple[Arrays, Tree]:
        """Forward pass, loss and metrics of a batch: the outputs of the last stage, and metrics."""
        model = self.mode.model
        data = keras().utils.unpack_x_y_sample_weight(batch)
        with staged(model):
            loss, (unscaled, predicted, kept, metrics) = model.compute_loss_and_updates(
                self.mode.unnamed(trained),
                kept,
                metrics,
                *data,
                training=True,
                optimizer_variables=optimizer,
            )
        said, metrics = model._update_metrics_variables(
            metrics, unscaled, data[0], data[1], predicted, data[2]
        )
        return kept, ([loss, said], metrics)

    def run(self, state: State, batches: Batches, most: int) -> tuple[Tree, State]:
        """As `Program.run`.

        Raises:
          KerasError: (a `ValueError`) besides, a schedule that these micro-batches do not fit.
        """
        try:
            return super().run(state, batches, most)
        except ScheduleError as error:
            steps = f"gradient_accumulation_steps_per_replica={self.mode.accumulation}"
            raise check.refuse(
                f"model {self.mode.model.name!r} cannot be pipelined with {steps}: {error.summary}",
                f"set_pipelining_options with other values; for its schedule, {error.fix}",
            ) from error

    def divided(self, batches: int) -> tuple[int, int]:
        """As `Program.divided`; the scale of a loss is read between device loops."""
        steps, micro_batches = super().divided(batches)
        return (1 if _scales_loss(self.mode.model) else steps), micro_batches

    def carried(self, state: State) -> TrainState:
        """As `Program.carried`."""
        trained, kept, optimizer, metrics = state
        return TrainState(self.mode.named(trained), optimizer, (kept, metrics))

    def given_back(self, carried: TrainState) -> State:
        """As `Program.given_back`."""
        kept, metrics = carried.state
        return self.mode.unnamed(carried.variables), kept, carried.optimizer_state, metrics

    def said(self, results: Tree) -> Tree:
        """As `Program.said`; the loss is for the optimizer."""
        return results[1]


class PipelinedInference(Program):
    """Evaluation and prediction as a pipeline: the batches of an execution are in it together."""

    def made_loop(self, micro_batches: int) -> Inference:
        """As `Program.made_loop`."""
        mode = self.mode
        check_own(mode.model, f"{mode.kind}_step")
        apart = mode.untrained.drawing_apart(self._pass)

        def forward(trained: Named, state: tuple[Arrays, Arrays], batch: Any) -> StageOutput:
            kept, (said, metrics) = apart(state[0], trained, state[1], batch)
            return StageOutput([said], (kept, metrics))

        options = {name: x for name, x in mode.pipeline.items() if name in _OF_INFERENCE}
        asked = mode.pipeline.get("pipeline_schedule")
        # Its rounds of forward passes need no number of micro-batches that fits the stages.
        options["pipeline_schedule"] = (
            asked if asked is PipelineSchedule.Sequential else schedules.gpipe
        )
        pipeline = Pipeline(forward, options, count=mode.stages)
        return Inference(pipeline, accumulation=micro_batches, **self.options)

    def _pass(
        self, kept: Arrays, trained: Named, metrics: Arrays, batch: Any
    ) -> tuple[Arrays, Tree]:
        """What Keras's step says of a batch, and metrics."""
        model, state = self.mode.model, (self.mode.unnamed(trained), kept)
        with staged(model):
            if self.mode.kind == "test":
                said, (_, kept, metrics) = model.test_step((*state, metrics), batch)
            else:
                said, kept = model.predict_step(state, batch)
        return kept, (said, metrics)

    def divided(self, batches: int) -> tuple[int, int]:
        """As `Program.divided`."""
        return 1, batches // self.mode.replicas

    def carried(self, state: State) -> TrainState:
        """As `Program.carried`."""
        trained, kept, *metrics = state
        return TrainState(self.mode.named(trained), state=(kept, metrics[0] if metrics else []))

    def given_back(self, carried: TrainState) -> State:
        """As `Program.given_back`."""
        kept, metrics = carried.state
        trained = self.mode.unnamed(carried.variables)
        return (trained, kept, metrics) if self.mode.kind == "test" else (trained, kept)

    def said(self, results: Tree) -> Tree:
        """As `Program.said`: all outputs of the last stage are one."""
        return results[0]


def _scales_loss(model: Any) -> bool:
    """Whether the optimizer scales the loss, by a number that changes from update to update."""
    return isinstance(model.optimizer, keras().optimizers.LossScaleOptimizer)
