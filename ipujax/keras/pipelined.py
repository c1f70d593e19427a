"""A Keras model's steps as a pipeline.

The forward pass, the loss and the metrics are one JAX function. Its equations carry the marks of
the stages that layers were assigned to, and it is cut where these say.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ipujax.keras.backend import keras
from ipujax.keras.batches import Batches
from ipujax.keras.checks import check, check_share
from ipujax.keras.gradients import Update, unpacked
from ipujax.keras.mode import Arrays, Mode, State
from ipujax.keras.programs import Program
from ipujax.keras.staged import staged
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, StageOutput
from ipujax.training import Inference, Pipeline, Training, TrainState
from ipujax.training.device_loop import Advance, DeviceLoop
from ipujax.training.state import Tree

Named = dict[str, jax.Array]


class PipelinedTraining(Program):
    """Training as a pipeline."""

    def made_loop(self) -> Training:
        """As `Program.made_loop`."""
        mode, model = self.mode, self.mode.model
        _check_own(mode, "train_step")
        update = Update(model)
        names = names_of(model.trainable_variables)
        apart = mode.untrained.drawing_apart(functools.partial(self._pass, tuple(names)))
        scaled = is_scaled(model)

        def forward(trained: Named, state: tuple[Arrays, Arrays], *inputs: Tree) -> StageOutput:
            *optimizer, batch = inputs
            kept, metrics = state
            kept, (outputs, metrics) = apart(
                kept, trained, metrics, optimizer[0] if scaled else [], batch
            )
            return StageOutput(outputs, (kept, metrics))

        def optimizer(loss: jax.Array, *_: Tree) -> OptimizerFunctionOutput:
            return OptimizerFunctionOutput(update.optimizer_of(names), loss)

        return Training(
            Pipeline(forward, mode.pipeline, count=mode.stages),
            optimizer,
            accumulation=mode.accumulation,
            reduction_method=mode.reduction,
            inputs=(lambda state: [state.optimizer_state]) if scaled else None,
            state_reduction=mode.untrained.reduced if mode.replicas > 1 else None,
            **self.options,
        )

    def _pass(
        self,
        names: tuple[str, ...],
        kept: Arrays,
        trained: Named,
        metrics: Arrays,
        optimizer: Arrays,
        batch: Any,
    ) -> tuple[Arrays, Tree]:
        """Forward pass, loss and metrics of a batch; the losses come first."""
        model = self.mode.model
        x, y, weights = unpacked(batch)
        with staged(model):
            loss, (unscaled, predicted, kept, metrics) = model.compute_loss_and_updates(
                [trained[name] for name in names],
                kept,
                metrics,
                x,
                y,
                weights,
                training=True,
                optimizer_variables=optimizer,
            )
            said, metrics = model._update_metrics_variables(
                metrics, unscaled, x, y, predicted, weights
            )
        return kept, ([loss, said], metrics)

    def carried(self, state: State) -> TrainState:
        """As `Program.carried`."""
        trained, kept, optimizer, metrics = state
        names = names_of(self.mode.model.trainable_variables)
        return TrainState(dict(zip(names, trained, strict=True)), optimizer, (kept, metrics))

    def given_back(self, carried: TrainState) -> State:
        """As `Program.given_back`."""
        kept, metrics = carried.state
        names = names_of(self.mode.model.trainable_variables)
        return [carried.variables[n] for n in names], kept, carried.optimizer_state, metrics

    def most_steps(self, steps: int) -> int:
        """As `Program.most_steps`: a loss scale that steps change is read between device loops."""
        return 1 if is_scaled(self.mode.model) else steps

    def said(self, results: Tree) -> Tree:
        """As `Program.said`: the last stage sends the loss, too."""
        return results[1]


class PipelinedInference(Program):
    """Evaluation and prediction as a pipeline; the batches of an execution are its micro-batches."""

    def made_loop(self) -> DeviceLoop:
        """As `Program.made_loop`."""
        _check_own(self.mode, f"{self.mode.kind}_step")
        return self._of(self.mode.model.steps_per_execution // self.mode.replicas or 1)

    def _of(self, count: int) -> DeviceLoop:
        """The loop whose steps have so many micro-batches."""
        made = self._loops.get(count)
        if made is None:
            made = self._loops[count] = self._made(count)
        return made

    @functools.cached_property
    def _loops(self) -> dict[int, DeviceLoop]:
        return {}

    def _made(self, count: int) -> Inference:
        mode = self.mode
        apart = mode.untrained.drawing_apart(self._pass)

        def forward(trained: Named, state: tuple[Arrays, Arrays], batch: Any) -> StageOutput:
            kept, metrics = state
            kept, (said, metrics) = apart(kept, trained, metrics, batch)
            return StageOutput([said], (kept, metrics))

        return Inference(
            Pipeline(forward, scheduled(mode, count), count=mode.stages),
            accumulation=count,
            state_reduction=mode.untrained.reduced if mode.replicas > 1 else None,
            **self.options,
        )
