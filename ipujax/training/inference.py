"""Inference: a model without an optimizer, as loops on the device."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax import loops
from ipujax.checks.lines import api_boundary
from ipujax.ipu_outfeed_queue import IPUOutfeedMode
from ipujax.training.callbacks import Callback
from ipujax.training.checks import check
from ipujax.training.device_loop import DeviceLoop, Queues
from ipujax.training.feeds import Data
from ipujax.training.stages import Pipeline
from ipujax.training.state import StepOutput, TrainState, Tree
from ipujax.training.step import SelfDifferentiating
from lowering import lists


@check.guard
@lists(
    "compile", "evaluate", "executable", "predict", "trace",
    *(each.name for each in dc.fields(DeviceLoop)),
)  # fmt: skip
@dc.dataclass(frozen=True, eq=False)
class Inference(DeviceLoop):
    """What a step of evaluation or prediction is.

    Attributes:
      model: `model(variables, state, *inputs, *element)`, as that of a `Training`, gives a pytree
        that is sent to the host, or a `StepOutput`; or a `Pipeline`, whose last stage gives one.
        The state that a `StepOutput` (or a stage's `StageOutput`) has goes into the next step;
        none of it is left of a run.
      accumulation: elements in a step, which is one execution of a pipeline.

    The others are those of a `Training`; without `state_reduction` nothing is reduced.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.model, SelfDifferentiating):
            raise check.other_than("a function or a Pipeline", self.model, "the model")

    def predict(
        self,
        state: TrainState,
        data: Data,
        steps: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Iterator[Tree]:
        """Iterates over what the model gives, `[results, (replicas,) ...]` for each device loop.

        Args:
          state: whose variables and untrained state the model takes.
          data: as in `Training.fit`.
          steps: how many; None until the data ends.
          callbacks: as in `Training.fit`.
        """
        return self.run(self._new_run(state, steps, callbacks), data, callbacks)

    @api_boundary
    def evaluate(
        self,
        state: TrainState,
        data: Data,
        steps: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Tree:
        """What the model gives, summed over steps and replicas, in 64 bits.

        Args:
          state: as in `predict`.
          data: as in `predict`.
          steps: as in `predict`.
          callbacks: as in `predict`.

        Raises:
          TrainingError: (a `ValueError`) with an outfeed that keeps the last result only, or where
            no step was made.
        """
        if self.outfeed_mode is not IPUOutfeedMode.ALL:
            raise check.refuse(
                "evaluate sums all results, and the outfeed keeps the last only",
                "leave outfeed_mode out",
            )
        run, sums = self._new_run(state, steps, callbacks), None
        for results in self.run(run, data, callbacks):
            axes = (0, 1) if run.replicas > 1 else (0,)
            totals = jax.tree.map(lambda x, axes=axes: summed(x, axes), results)
            sums = totals if sums is None else jax.tree.map(np.add, sums, totals)
        if sums is None:
            raise check.refuse("there is nothing to sum: no step was made")
        return sums

    def program(self, steps: int, queues: Queues) -> Callable[..., tuple[Tree, ...]]:
        """As `DeviceLoop.program`: the untrained state; of a pipeline only if it has some."""

        def program(variables: Tree, state: Tree, inputs: Tree) -> tuple[Tree, ...]:
            return self._program(steps, queues, variables, state, inputs)

        return program

    def _program(
        self, steps: int, queues: Queues, variables: Tree, state: Tree, inputs: Sequence[Tree]
    ) -> tuple[Tree, ...]:
        model: Any = self.model
        if isinstance(model, Pipeline):
            after = model.run(steps, self.accumulation, queues, inputs, variables, state=state)
            return self._reduced(state, *after) if after else after

        def step(state: Tree, *element: Tree, **by_name: Tree) -> tuple[Tree]:
            before = [variables] if state is None else [variables, state]
            output = model(*before, *inputs, *element, **by_name)
            if not isinstance(output, StepOutput):
                output = StepOutput(output, state=state)
            queues[1].enqueue(output.loss if output.send is None else output.send)
            return (output.state,)

        return self._reduced(
            state, loops.repeat(steps * self.accumulation, step, [state], queues[0])
        )

    def _reduced(self, before: Tree, after: Tree) -> tuple[Tree]:
        return (after if self.state_reduction is None else self.state_reduction(before, after),)

    def carried(self, state: TrainState) -> tuple[Tree, Tree]:
        """As `DeviceLoop.carried`."""
        return state.variables, state.state

    def after(self, state: TrainState, carried: Tree, steps: int) -> TrainState:
        """As `DeviceLoop.after`: the same variables."""
        own = carried[0] if carried else None  # of a pipeline without state nothing comes back
        return TrainState(
            state.variables, state.optimizer_state, own, state.step + steps * self.step_size
        )


def summed(array: Any, axes: tuple[int, ...]) -> np.ndarray:
    """A sum over some axes, of floats in 64 bits."""
    values = np.asarray(array)
    wide: Any = None
    if jnp.issubdtype(values.dtype, jnp.inexact):
        wide = np.complex128 if np.iscomplexobj(values) else np.float64
    return np.sum(values, axis=axes, dtype=wide)
