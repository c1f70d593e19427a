"""Training: a model, a loss and an optimizer, as device loops."""

from __future__ import annotations

import contextlib
import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.ground import OutOfRangeError, TrainingError, api_boundary
from ipujax.optimizers import (
    GradientAccumulationReductionMethod,
    init_optimizer_state,
    make_dtype_chooser,
    parse_reduction_method,
)
from ipujax.optimizers import worker_summation as summation
from ipujax.pipelines import OptimizerFunctionOutput, is_optimizer
from ipujax.training.device_loop import DeviceLoop, Queues
from ipujax.training.feeds import Data
from ipujax.training.pipeline_model import Pipeline
from ipujax.training.training_callbacks import Callback
from ipujax.training.training_checks import check
from ipujax.training.training_state import TrainState, Tree, drop_weak_types
from ipujax.training.weight_update import (
    LoopCarry,
    ReplicaReduction,
    WeightUpdate,
    average_state_over_replicas,
    wrap_with_replica_reduction,
)
from lowering import limit_dir_to


@check.guard
@limit_dir_to(
    "accumulation_dtype", "compile", "executable", "fit", "init", "optimizer", "reduction_method",
    "replica_reduction", "trace", *(each.name for each in dc.fields(DeviceLoop)),
)  # fmt: skip
@dc.dataclass(frozen=True, eq=False)
class Training(DeviceLoop):
    """The definition of a step of training; a step is one weight update.

    Attributes:
      model: `model(variables, state, *inputs, *element)` (without `state` if that is None, the
        element by keyword if it is a dict) gives the loss of a micro-batch, or a `StepOutput`;
        or a `Pipeline`, whose last stage gives the loss, or what `optimizer` takes, and whose
        stages are given variables and state in the same way, and may return a `StageOutput`; or a
        `SelfDifferentiating` one, which gives gradients.
      optimizer: an optax transformation, or one of `ipujax.optimizers`; in a pipeline also a
        function of the last stage's outputs that gives an `OptimizerFunctionOutput`.
      accumulation: micro-batches in a step, each an element of the data set for each replica.
      reduction_method: SUM, MEAN or RUNNING_MEAN of the micro-batches' gradients, or its name.
      accumulation_dtype: the dtype of the sum of gradients: None for the variables' own, a dtype,
        or a function from a variable to one.
      replica_reduction: the reduction of gradients over replicas.
      steps_per_loop: steps in a device loop; None for all of a `fit`.
      step_size: the number that a step adds to `TrainState.step`.
      prefetch_depth: the prefetch depth of the infeed, as in `IPUInfeedQueue`.
      inputs: returns, from the state before a device loop, arrays that the model takes in front of
        the element, the same in all steps of that loop.
      state_reduction: `reduce(before, after)` returns, on every replica, the untrained state after
        a device loop, from the state before it and the replica's own after it; None for the mean of
        the leaves of float and complex.
      outfeed_mode: ALL keeps what every micro-batch sends until the device loop ends, LAST the
        last one's.
      device: the logical device; by default that of the enclosing `ipu_scope`, or the first one.
      engine: as in `ipu.compile`.
      name: the name of the program; that of the class by default.
      replicas: as in `ipu.compile`.
      alone: as in `ipu.compile`.
      names: a state with texts in place of arrays, which reports call the arrays by; None for
        their paths in the state: `variables['w']`.
      meshes: as in `ipu.compile`.

    A state stays where it is computed: between device loops each array is on the JAX device (or the
    mesh) of the IPU that it is used on, in the process's first replica. `ipurun --spread ipus`
    brings it to the first device of every process.

    When a device loop ends, leaves of the untrained state that are not reduced have the values of
    this process's first replica; if the data ended in the loop, all leaves have.

    Raises:
      TrainingTypeError: (a `TypeError`) arguments of a wrong type.
      TrainingError: (a `ValueError`) arguments with wrong values.
    """

    optimizer: Any
    reduction_method: Any = dc.field(default=GradientAccumulationReductionMethod.SUM, kw_only=True)
    accumulation_dtype: Any = dc.field(default=None, kw_only=True)
    replica_reduction: ReplicaReduction = dc.field(default=ReplicaReduction.MEAN, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_reduction_method(self.reduction_method)
        _ = self._accumulator_dtype
        check.require_instance(self.replica_reduction, ReplicaReduction, "replica_reduction")
        is_optimizer_function = isinstance(self.model, Pipeline) and callable(self.optimizer)
        if not is_optimizer_function and not is_optimizer(self.optimizer):
            expected = "an optax gradient transformation, such as optax.sgd(0.1)"
            raise check.wrong_type_error(expected, self.optimizer, "the optimizer")

    def init(self, variables: Tree, state: Tree = None, optimizer_state: Tree = None) -> TrainState:
        """Returns a state to begin training with.

        Args:
          variables: the initial values of the variables.
          state: the initial untrained state, which the model changes; None for none.
          optimizer_state: the optimizer's initial state; None to call `optimizer.init`.
        """
        if optimizer_state is None:
            if not is_optimizer(self.optimizer):
                raise check.value_error(
                    "a function that makes the optimizer does not give its initial state",
                    "give optimizer_state=opt.init(variables)",
                )
            optimizer_state = init_optimizer_state(self.optimizer, variables)
        return TrainState(*drop_weak_types((variables, optimizer_state, state)))

    @api_boundary
    def fit(
        self,
        state: TrainState,
        data: Data,
        steps: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> TrainState:
        """Trains until some more steps are made, a callback stops it, or the data ends.

        Args:
          state: the state to begin with.
          data: an iterable of elements, or a callable that gives one. The same iterator again
            goes on where it is, anything else starts from its first element.
          steps: the number of steps; None until the data ends.
          callbacks: the callbacks to notify, in this order.

        Returns:
          The state after the last step, whose `step` counts them.

        Raises:
          OutOfRangeError: an empty data set.
          Exception: any exception of the data set, the program or a callback. Its `carried` is
            the state after the last device loop.
        """
        run = self._new_run(state, steps, callbacks)
        try:
            for _ in self.iterate_loops(run, data, callbacks):
                pass
        except BaseException as error:
            with contextlib.suppress(AttributeError):  # of a class with slots
                error.carried = run.state  # pyright: ignore[reportAttributeAccessIssue]
            raise
        return run.state

    def build_program(self, steps: int, queues: Queues) -> Callable[..., LoopCarry]:
        """Returns the function to trace, which gives variables, optimizer and untrained state."""

        def run_training_steps(
            variables: Tree, optimizer_state: Tree, state: Tree, inputs: Tree
        ) -> LoopCarry:
            with summation.enter_summation(None):  # `replica_reduction` alone reduces gradients
                return self._run_steps(steps, queues, (variables, optimizer_state, state), inputs)

        return run_training_steps

    def _run_steps(
        self, steps: int, queues: Queues, carry: LoopCarry, inputs: Sequence[Tree]
    ) -> LoopCarry:
        variables, optimizer_state, state = carry
        if isinstance(self.model, Pipeline):
            final_carry = self.model.run(
                steps,
                self.accumulation,
                queues,
                inputs,
                variables,
                self._make_optimizer_output,
                optimizer_state=optimizer_state,
                state=state,
                reduction_method=self.reduction_method,
                gradient_accumulation_dtype=self.accumulation_dtype,
            )
        else:
            weight_update = WeightUpdate(
                self.model,
                self.optimizer,
                self.replica_reduction,
                self.accumulation,
                parse_reduction_method(self.reduction_method),
                self._accumulator_dtype,
                queues,
            )
            final_carry = weight_update.repeat_updates(
                steps, (variables, optimizer_state, state), inputs
            )
        # A pipeline without untrained state returns none.
        variables, optimizer_state, new_state = (*final_carry, None)[:3]
        reduce = self.state_reduction or (lambda _, after: average_state_over_replicas(after))
        return variables, optimizer_state, reduce(state, new_state)

    def select_program_arguments(self, state: TrainState) -> LoopCarry:
        """Returns the variables, the optimizer's state and the untrained state."""
        return state.variables, state.optimizer_state, state.state

    def replace_program_arguments(
        self, state: TrainState, arguments: tuple[Tree, ...]
    ) -> TrainState:
        """Returns a state with other variables, optimizer state and untrained state."""
        variables, optimizer_state, untrained_state = arguments
        return TrainState(variables, optimizer_state, untrained_state, state.step)

    def build_state_after_steps(self, state: TrainState, carry: Tree, steps: int) -> TrainState:
        """Returns the state after some steps, from the carry of the training loop."""
        # A pipeline may carry two values, and micro-batches in which the data ended carry more.
        variables, optimizer_state, untrained_state = (*carry, None)[:3]
        return TrainState(
            variables, optimizer_state, untrained_state, state.step + steps * self.step_size
        )

    def count_complete_steps(self, error: OutOfRangeError, steps: int) -> int:
        """Returns how many updates were complete when the data ended."""
        if self.accumulation == 1 or isinstance(self.model, Pipeline):
            return super().count_complete_steps(error, steps)
        return int(error.carried[3])  # the error itself counts the micro-batches of one step

    def _make_optimizer_output(self, *outputs: Tree) -> OptimizerFunctionOutput:
        if not is_optimizer(self.optimizer):
            output = self.optimizer(*outputs)
        elif len(outputs) == 1:
            output = OptimizerFunctionOutput(self.optimizer, *outputs)
        else:
            raise check.value_error(
                f"the last stage returns {len(outputs)} values, and nothing says which is the loss",
                "return the loss alone, or give as optimizer a function of all of them that "
                "returns an OptimizerFunctionOutput",
            )
        output.opt = wrap_with_replica_reduction(output.opt, self.replica_reduction)
        return output

    @property
    def _accumulator_dtype(self) -> Callable[[jax.Array], np.dtype[np.generic]]:
        return make_dtype_chooser(
            self.accumulation_dtype, "accumulation_dtype", jnp.inexact, TrainingError
        )
