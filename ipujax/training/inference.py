"""Evaluation and prediction: a model without an optimizer, as device loops."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.ground import api_boundary
from ipujax.host import IPUOutfeedMode
from ipujax.operators import loops
from ipujax.training.device_loop import DeviceLoop, Queues
from ipujax.training.feeds import Data
from ipujax.training.pipeline_model import Pipeline
from ipujax.training.training_callbacks import Callback
from ipujax.training.training_checks import check
from ipujax.training.training_state import StepOutput, TrainState, Tree
from ipujax.training.weight_update import SelfDifferentiating
from lowering import limit_dir_to


@check.guard
@limit_dir_to(
    "compile", "evaluate", "executable", "predict", "trace",
    *(each.name for each in dc.fields(DeviceLoop)),
)  # fmt: skip
@dc.dataclass(frozen=True, eq=False)
class Inference(DeviceLoop):
    """The definition of a step of evaluation or prediction.

    Attributes:
      model: `model(variables, state, *inputs, *element)`, as that of a `Training`, gives a pytree
        that is sent to the host, or a `StepOutput`; or a `Pipeline`, whose last stage gives one.
        The state that a `StepOutput` (or a stage's `StageOutput`) has goes into the next step,
        and is dropped at the end of a run.
      accumulation: elements in a step, which is one execution of a pipeline.

    The other attributes are those of a `Training`; without `state_reduction` nothing is reduced.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.model, SelfDifferentiating):
            raise check.wrong_type_error("a function or a Pipeline", self.model, "the model")

    def predict(
        self,
        state: TrainState,
        data: Data,
        steps: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Iterator[Tree]:
        """Iterates over the model's results, `[results, (replicas,) ...]` for each device loop.

        Args:
          state: the variables and untrained state that the model takes.
          data: the data set, as in `Training.fit`.
          steps: the number of steps; None until the data ends.
          callbacks: as in `Training.fit`.
        """
        return self.iterate_loops(self._new_run(state, steps, callbacks), data, callbacks)

    @api_boundary
    def evaluate(
        self,
        state: TrainState,
        data: Data,
        steps: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Tree:
        """Returns the model's results, summed over steps and replicas, in 64 bits.

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
            raise check.value_error(
                "evaluate sums all results, and the outfeed keeps the last only",
                "leave outfeed_mode out",
            )
        run, sums = self._new_run(state, steps, callbacks), None
        for results in self.iterate_loops(run, data, callbacks):
            axes = (0, 1) if run.replicas > 1 else (0,)
            totals = jax.tree.map(lambda array, axes=axes: sum_in_64_bits(array, axes), results)
            sums = totals if sums is None else jax.tree.map(np.add, sums, totals)
        if sums is None:
            raise check.value_error("there is nothing to sum: no step was made")
        return sums

    def build_program(self, steps: int, queues: Queues) -> Callable[..., tuple[Tree, ...]]:
        """Returns the function to trace, which gives the untrained state where there is some."""

        def run_inference_steps(variables: Tree, state: Tree, inputs: Tree) -> tuple[Tree, ...]:
            return self._run_steps(steps, queues, variables, state, inputs)

        return run_inference_steps

    def _run_steps(
        self, steps: int, queues: Queues, variables: Tree, state: Tree, inputs: Sequence[Tree]
    ) -> tuple[Tree, ...]:
        model: Any = self.model
        if isinstance(model, Pipeline):
            final_state = model.run(
                steps, self.accumulation, queues, inputs, variables, state=state
            )
            return self._reduce_untrained_state(state, *final_state) if final_state else final_state

        def infer_step(state: Tree, *element: Tree, **by_name: Tree) -> tuple[Tree]:
            leading_arguments = [variables] if state is None else [variables, state]
            output = model(*leading_arguments, *inputs, *element, **by_name)
            if not isinstance(output, StepOutput):
                output = StepOutput(output, state=state)
            queues[1].enqueue(output.loss if output.send is None else output.send)
            return (output.state,)

        return self._reduce_untrained_state(
            state, loops.repeat(steps * self.accumulation, infer_step, [state], queues[0])
        )

    def _reduce_untrained_state(self, old: Tree, new: Tree) -> tuple[Tree]:
        return (new if self.state_reduction is None else self.state_reduction(old, new),)

    def select_program_arguments(self, state: TrainState) -> tuple[Tree, Tree]:
        """Returns the variables and the untrained state."""
        return state.variables, state.state

    def replace_program_arguments(
        self, state: TrainState, arguments: tuple[Tree, ...]
    ) -> TrainState:
        """Returns a state with other variables and untrained state."""
        variables, untrained_state = arguments
        return TrainState(variables, state.optimizer_state, untrained_state, state.step)

    def build_state_after_steps(self, state: TrainState, carry: Tree, steps: int) -> TrainState:
        """Returns the state after some steps: the same variables, new untrained state."""
        untrained_state = carry[0] if carry else None  # a pipeline without state returns nothing
        return TrainState(
            state.variables,
            state.optimizer_state,
            untrained_state,
            state.step + steps * self.step_size,
        )


def sum_in_64_bits(array: object, axes: tuple[int, ...]) -> np.ndarray:
    """Returns the sum of an array over some axes, of floats in 64 bits."""
    values = np.asarray(array)
    sum_dtype: object = None
    if jnp.issubdtype(values.dtype, jnp.inexact):
        sum_dtype = np.complex128 if np.iscomplexobj(values) else np.float64
    return np.sum(values, axis=axes, dtype=sum_dtype)
