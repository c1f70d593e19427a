"""Training: a model, a loss and an optimizer, as loops on the device."""

from __future__ import annotations

import contextlib
import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.checks.lines import api_boundary
from ipujax.distribution import summation
from ipujax.errors import OutOfRangeError, TrainingError
from ipujax.gradient_accumulation import (
    GradientAccumulationReductionMethod,
    parse_reduction_method,
)
from ipujax.optimizers.accumulation import dtype_chooser
from ipujax.optimizers.trained_leaves import initial_state
from ipujax.pipelines.arguments import OptimizerFunctionOutput, is_optimizer
from ipujax.training.callbacks import Callback
from ipujax.training.checks import check
from ipujax.training.device_loop import DeviceLoop, Queues
from ipujax.training.feeds import Data
from ipujax.training.stages import Pipeline
from ipujax.training.state import TrainState, Tree, on_device
from ipujax.training.step import Carried, ReplicaReduction, Step, averaged_state, reduced
from lowering import lists


@check.guard
@lists(
    "accumulation_dtype", "compile", "executable", "fit", "init", "optimizer", "reduction_method",
    "replica_reduction", "trace", *(each.name for each in dc.fields(DeviceLoop)),
)  # fmt: skip
@dc.dataclass(frozen=True, eq=False)
class Training(DeviceLoop):
    """What a step of training is; a step is one weight update.

    Attributes:
      model: `model(variables, state, *inputs, *element)` (without `state` if that is None, the
        element by keyword if it is a dict) gives the loss of a micro-batch, or a `StepOutput`;
        or a `Pipeline`, whose last stage gives the loss, or what `optimizer` takes, and whose
        stages are given variables and state in the same way, and may return a `StageOutput`; or a
        `SelfDifferentiating` one, which gives gradients.
      optimizer: an optax transformation, or one of `ipujax.optimizers`; in a pipeline also a
        function of the last stage's outputs that gives an `OptimizerFunctionOutput`.
      accumulation: micro-batches in a step, each an element of the data set for each replica.
      reduction_method: SUM, MEAN or RUNNING_MEAN of their gradients, or its name.
      accumulation_dtype: of their sum: None for the variables' own, a dtype, or a function from a
        variable to one.
      replica_reduction: of the replicas' gradients.
      steps_per_loop: steps in a device loop; None for all of a `fit`.
      step_size: what a step adds to `TrainState.step`.
      prefetch_depth: of the infeed, as `IPUInfeedQueue` has it.
      inputs: gives, from the state before a device loop, arrays that the model takes in front of
        the element, the same in all steps of that loop.
      state_reduction: `reduce(before, after)` gives, on every replica, the untrained state that a
        device loop leaves, from that before it and the replica's own after it; None for the mean
        of the leaves of float and complex.
      outfeed_mode: ALL keeps what every micro-batch sends until the device loop ends, LAST the
        last one's.
      device: the logical device; that of the `ipu_scope` around, or the first one, by default.
      engine: as in `ipu.compile`.
      name: the program's; that of the class by default.
      replicas: as in `ipu.compile`.
      alone: as in `ipu.compile`.
      names: a state with texts in place of arrays, which reports call the arrays by; None for
        their paths in the state: `variables['w']`.

    Leaves of the untrained state that are not reduced when a device loop ends are those of this
    process's first replica; so are all where the data ended in it.

    Raises:
      TrainingTypeError: (a `TypeError`) arguments of a wrong type.
      TrainingError: (a `ValueError`) arguments that cannot be.
    """

    optimizer: Any
    reduction_method: Any = dc.field(default=GradientAccumulationReductionMethod.SUM, kw_only=True)
    accumulation_dtype: Any = dc.field(default=None, kw_only=True)
    replica_reduction: ReplicaReduction = dc.field(default=ReplicaReduction.MEAN, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_reduction_method(self.reduction_method)
        _ = self._accumulator_dtype
        check.instance(self.replica_reduction, ReplicaReduction, "replica_reduction")
        makes_one = isinstance(self.model, Pipeline) and callable(self.optimizer)
        if not makes_one and not is_optimizer(self.optimizer):
            wanted = "an optax gradient transformation, such as optax.sgd(0.1)"
            raise check.other_than(wanted, self.optimizer, "the optimizer")

    def init(self, variables: Tree, state: Tree = None, optimizer_state: Tree = None) -> TrainState:
        """A state to begin with.

        Args:
          variables: initial values.
          state: what the model changes without training it.
          optimizer_state: None for what `optimizer.init` gives.
        """
        if optimizer_state is None:
            if not is_optimizer(self.optimizer):
                raise check.refuse(
                    "a function that makes the optimizer cannot say what its initial state is",
                    "give optimizer_state=opt.init(variables)",
                )
            optimizer_state = initial_state(self.optimizer, variables)
        return TrainState(*on_device((variables, optimizer_state, state)))

    @api_boundary
    def fit(
        self,
        state: TrainState,
        data: Data,
        steps: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> TrainState:
        """Trains until so many more steps are made, a callback stops it, or the data ends.

        Args:
          state: to begin with.
          data: an iterable of elements, or a callable that gives one. The same iterator again
            goes on where it is, anything else starts from its first element.
          steps: how many; None until the data ends.
          callbacks: told what happens, in this order.

        Returns:
          The state after the last step, whose `step` counts them.

        Raises:
          OutOfRangeError: an empty data set.
          Exception: what the data set, the program or a callback raises. Its `carried` is the
            state after the last device loop.
        """
        run = self._new_run(state, steps, callbacks)
        try:
            for _ in self.run(run, data, callbacks):
                pass
        except BaseException as error:
            with contextlib.suppress(AttributeError):  # of a class with slots
                error.carried = run.state  # pyright: ignore[reportAttributeAccessIssue]
            raise
        return run.state

    def program(self, steps: int, queues: Queues) -> Callable[..., Carried]:
        """As `DeviceLoop.program`: the trained variables, optimizer state and untrained state."""

        def program(variables: Tree, optimizer_state: Tree, state: Tree, inputs: Tree) -> Carried:
            with summation.entered(None):  # `replica_reduction` says what becomes of gradients
                return self._program(steps, queues, (variables, optimizer_state, state), inputs)

        return program

    def _program(
        self, steps: int, queues: Queues, carried: Carried, inputs: Sequence[Tree]
    ) -> Carried:
        variables, optimizer_state, state = carried
        if isinstance(self.model, Pipeline):
            final = self.model.run(
                steps,
                self.accumulation,
                queues,
                inputs,
                variables,
                self._pipeline_optimizer,
                optimizer_state=optimizer_state,
                state=state,
                reduction_method=self.reduction_method,
                gradient_accumulation_dtype=self.accumulation_dtype,
            )
        else:
            step = Step(
                self.model,
                self.optimizer,
                self.replica_reduction,
                self.accumulation,
                parse_reduction_method(self.reduction_method),
                self._accumulator_dtype,
                queues,
            )
            final = step.repeat(steps, (variables, optimizer_state, state), inputs)
        # A pipeline without untrained state gives none back.
        variables, optimizer_state, after = (*final, None)[:3]
        reduce = self.state_reduction or (lambda _, after: averaged_state(after))
        return variables, optimizer_state, reduce(state, after)

    def carried(self, state: TrainState) -> Carried:
        """As `DeviceLoop.carried`."""
        return state.variables, state.optimizer_state, state.state

    def after(self, state: TrainState, carried: Tree, steps: int) -> TrainState:
        """As `DeviceLoop.after`."""
        # A pipeline may have two of them, and micro-batches in which the data ended have more.
        variables, optimizer_state, own = (*carried, None)[:3]
        return TrainState(variables, optimizer_state, own, state.step + steps * self.step_size)

    def steps_made(self, error: OutOfRangeError, steps: int) -> int:
        """As `DeviceLoop.steps_made`."""
        if self.accumulation == 1 or isinstance(self.model, Pipeline):
            return super().steps_made(error, steps)
        return int(error.carried[3])  # the error itself counts micro-batches of one step

    def _pipeline_optimizer(self, *outputs: Tree) -> OptimizerFunctionOutput:
        if not is_optimizer(self.optimizer):
            made = self.optimizer(*outputs)
        elif len(outputs) == 1:
            made = OptimizerFunctionOutput(self.optimizer, *outputs)
        else:
            raise check.refuse(
                f"the last stage returns {len(outputs)} values, and nothing says which is the loss",
                "return the loss alone, or give as optimizer a function of all of them that "
                "returns an OptimizerFunctionOutput",
            )
        made.opt = reduced(made.opt, self.replica_reduction)
        return made

    @property
    def _accumulator_dtype(self) -> Callable[[jax.Array], np.dtype[Any]]:
        return dtype_chooser(
            self.accumulation_dtype, "accumulation_dtype", jnp.inexact, TrainingError
        )
