"""The programs of a traced module on virtual IPUs, which a wrapper runs when it is called."""

from __future__ import annotations

import abc
import dataclasses as dc
from collections.abc import Callable, Hashable, Sequence
from typing import Any, cast

import jax
import numpy as np
import optax
import torch

from ipujax.doors.graphs import Named, broadcast_train_state, build_inference, build_training
from ipujax.doors.torch import to_numpy
from ipujax.driver import Executable, compile, read_compile_context
from ipujax.ground import PyTree, count_replica_groups
from ipujax.pipelines import RecomputationMode
from ipujax.poptorch.batch_split import BatchSplit
from ipujax.poptorch.gradient_statistics import check_half_gradients, count_gradients
from ipujax.poptorch.optim.rules import Rule
from ipujax.poptorch.output_reductions import Reductions
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_forward import Forward
from ipujax.poptorch.poptorch_stages import check_pipeline_depth
from ipujax.training import (
    DeviceLoop,
    Scale,
    StepOutput,
    TrainState,
    drop_weak_types,
    gathers_results,
    select_loss_scale_factors,
)

_Result = tuple[Any, Named | None, Any, Named]
"""The results, variables, optimizer state, and changed entries of the untrained state."""


class Program(abc.ABC):
    """A base class of programs with the values that they have on the device.

    Attributes:
      forward: the module's forward pass.
      state: the current variables, optimizer state and untrained state.
    """

    def __init__(self, forward: Forward, state: TrainState):
        self.forward, self.state = forward, state

    @property
    @abc.abstractmethod
    def executable(self) -> Executable | None:
        """The executable of the last compilation; None before."""

    @abc.abstractmethod
    def compile_for_inputs(self, tensors: Sequence[torch.Tensor], keys: np.ndarray) -> Executable:
        """Compiles the program for inputs of these shapes."""

    @abc.abstractmethod
    def run_micro_batches(
        self, tensors: Sequence[torch.Tensor], keys: np.ndarray
    ) -> list[np.ndarray]:
        """Runs the program, and returns the results of each micro-batch.

        Args:
          tensors: the inputs of the combined batch.
          keys: the data of each micro-batch's random key, `uint32[2]`.

        Returns:
          Leaves `[micro-batch, ...]` in the order of the inputs: see `Forward`.
        """

    def broadcast_state(self) -> None:
        """Copies the first process's state to all processes that run the program."""
        self.state = broadcast_train_state(self.state, 0)

    @property
    def variables(self) -> Named:
        """The values of all parameters and buffers on the device, of the first replica."""
        values = {**self.state.variables, **self.state.state}
        return values | {name: values[name][0] for name in self.forward.own}

    def replace_values(self, values: Named) -> None:
        """Replaces values of parameters and buffers on the device."""
        variables, state = drop_weak_types(
            self.forward.split_trained_variables({**self.variables, **values})
        )
        self.state = dc.replace(self.state, variables=variables, state=state)

    @property
    def optimizer_state(self) -> PyTree:
        """The state of the optimizer's rule; may be set."""
        return self.state.optimizer_state

    @optimizer_state.setter
    def optimizer_state(self, state: Any) -> None:
        variables = self.state.variables
        if "scale" in state:
            variables = variables | dict.fromkeys(
                select_loss_scale_factors(variables), state["scale"].factor
            )
        self.state = dc.replace(
            self.state,
            variables=drop_weak_types(variables),
            optimizer_state=drop_weak_types(state),
        )


class LoopProgram(Program):
    """A program that runs micro-batches in a loop on the device."""

    def __init__(
        self, forward: Forward, state: TrainState, loop: DeviceLoop, batch_split: BatchSplit
    ):
        super().__init__(forward, state)
        self._loop, self._shares = loop, batch_split

    @property
    def executable(self) -> Executable | None:
        """The executable of the last compilation; None before."""
        return self._loop.executable

    def compile_for_inputs(self, tensors: Sequence[object], keys: np.ndarray) -> Executable:
        """Compiles the device loop for inputs of these shapes."""
        elements = self._shares.iterate_elements(tensors, keys)
        return self._loop.compile(self.state, elements, self._iterations_per_call)

    def run_micro_batches(self, tensors: Sequence[object], keys: np.ndarray) -> list[np.ndarray]:
        """Runs the device loop, and returns the results of each micro-batch."""
        elements = self._shares.iterate_elements(tensors, keys)
        advance = self._loop.run_single_loop(self.state, elements, self._iterations_per_call)
        self.state = advance.state
        lead = 2 if self._shares.replicas > 1 else 1
        leaves = map(np.asarray, jax.tree.leaves(advance.results))
        return [leaf.reshape(self._shares.count, *leaf.shape[lead:]) for leaf in leaves]

    @property
    def _iterations_per_call(self) -> int:
        return self._shares.iterations


class CallProgram(Program):
    """A program of one micro-batch without queues: the fastest way from a call to its result.

    Args:
      forward: the module's forward pass.
      state: the initial state.
      rule: the rule of the optimizer; None in inference.
      name: the name of the program.
    """

    def __init__(self, forward: Forward, state: TrainState, rule: Rule | None, name: str):
        super().__init__(forward, state)
        self._rule = rule
        step: Callable[..., _Result] = (
            self._compute_inference if rule is None else self._compute_training_step
        )
        alone = _leaves_out_processes(1)
        self._function = compile(
            step, name=name, replicas=1, alone=alone, gather=gathers_results(alone=alone)
        )
        self._executable: Executable | None = None
        self._context: Hashable = None  # the JAX settings that it was compiled under

    def _compute_inference(
        self, variables: Named, _: None, state: Named, *element: object
    ) -> _Result:
        output = self.forward(variables, state, *element)
        return output.send, None, None, _select_changed_state(state, output)

    def _compute_training_step(
        self, variables: Named, optimizer: Any, state: Named, *element: object
    ) -> _Result:
        gradients, output = self.forward.differentiate(variables, optimizer, state, *element)
        rule = cast(Rule, self._rule).optimizer
        updates, optimizer = rule.update(gradients, optimizer, variables)
        variables = cast(Named, optax.apply_updates(variables, updates))
        return output.send, variables, optimizer, _select_changed_state(state, output)

    @property
    def executable(self) -> Executable | None:
        """The executable of the last compilation; None before."""
        return self._executable

    def compile_for_inputs(self, tensors: Sequence[torch.Tensor], keys: np.ndarray) -> Executable:
        """Compiles the step for inputs of these shapes."""
        self._executable = self._function.lower(*self._build_arguments(tensors, keys)).compile()
        self._context = read_compile_context()
        return self._executable

    def run_micro_batches(
        self, tensors: Sequence[torch.Tensor], keys: np.ndarray
    ) -> list[np.ndarray]:
        """Runs the step, and returns its results with a leading axis of one micro-batch."""
        executable = self._executable
        if executable is None or self._context != read_compile_context():
            executable = self.compile_for_inputs(tensors, keys)
        arguments = executable.place_arguments(*self._build_arguments(tensors, keys))
        send, variables, optimizer, changed_state = executable(*arguments)
        step = self.state.step
        if self._rule is None:
            variables, optimizer = arguments[:2]
        else:
            step += 1
        self.state = TrainState(variables, optimizer, {**arguments[2], **changed_state}, step)
        return [np.asarray(leaf)[None] for leaf in send]

    def _build_arguments(
        self, tensors: Sequence[torch.Tensor], keys: np.ndarray
    ) -> tuple[PyTree, ...]:
        state = self.state
        scale = []
        if self.forward.is_scaled:
            scale.append(cast(Rule, self._rule).loss_scale(state.optimizer_state))
        elements = [*scale, *map(to_numpy, tensors), keys[0]]
        return state.variables, state.optimizer_state, state.state, *elements


def _select_changed_state(old_state: Named, output: StepOutput) -> Named:
    """Selects the entries of the untrained state that a step has changed."""
    return {n: x for n, x in cast(Named, output.state).items() if x is not old_state[n]}


def build_training_program(
    forward: Forward,
    rule: Rule,
    reductions: Reductions,
    batch_split: BatchSplit,
    values: Named,
    name: str,
) -> Program:
    """Builds a program that trains.

    Args:
      forward: the module's forward pass.
      rule: the rule of the optimizer.
      reductions: the reductions of gradients.
      batch_split: the micro-batches of a combined batch.
      values: the values of the module's parameters and buffers.
      name: the name of the program.
    """
    forward = dc.replace(forward, is_scaled=scales_loss(rule))
    if rule.scaling is not None:
        check_half_gradients(forward.module)
        counting = count_gradients(rule.scaling, forward.placement)
        forward = dc.replace(forward, counting=counting)
        values = values | dict.fromkeys(
            counting.factors.factor_names, Scale.make_initial_scale().factor
        )
    variables, state = forward.split_trained_variables(values)
    initial_state = TrainState(*drop_weak_types((variables, rule.optimizer.init(variables), state)))
    is_pipelined = forward.placement.is_pipelined
    if batch_split.count == forward.replicas == 1 and not is_pipelined:
        return CallProgram(forward, initial_state, rule, name)
    if is_pipelined and forward.gradients_of:
        raise check.value_error(
            "gradients cannot be anchored in a pipeline, whose stages have them one after another",
            "use ShardedExecution, or anchor UpdatedVar___ and the parameter's path",
        )

    if is_pipelined and forward.placement.plan is None:
        check_pipeline_depth(forward.placement, batch_split.accumulation)
    loop = build_training(
        forward,
        rule.optimizer,
        # The mode that heeds `recomputationCheckpoint`, if there is recomputation at all.
        {"recomputation_mode": RecomputationMode.RecomputeAndBackpropagateInterleaved},
        accumulation=batch_split.accumulation,
        accumulation_dtype=rule.accumulator,
        reduction_method=reductions.micro_batches,
        replica_reduction=reductions.replicas,
        inputs=(lambda train_state: [rule.loss_scale(train_state.optimizer_state)])
        if forward.is_scaled
        else None,
        name=name,
        replicas=batch_split.replicas,
        alone=_leaves_out_processes(batch_split.processes),
    )
    return LoopProgram(forward, initial_state, loop, batch_split)


def build_inference_program(
    forward: Forward, batch_split: BatchSplit, values: Named, name: str
) -> Program:
    """Builds a program that returns outputs, which every process runs by itself.

    The arguments are those of `build_training_program`.
    """
    is_pipelined = forward.placement.is_pipelined
    if batch_split.count == 1 and is_pipelined:
        forward = dc.replace(forward, placement=forward.placement.run_stages_in_turn())
    variables, state = forward.split_trained_variables(values)
    initial_state = TrainState(*drop_weak_types((variables, None, state)))
    if batch_split.count == 1:
        return CallProgram(forward, initial_state, None, name)
    options: Any = {
        "name": name,
        "replicas": batch_split.replicas,
        "alone": _leaves_out_processes(1),
    }
    loop = build_inference(forward, batch_split.iterations, **options)
    if is_pipelined:
        batch_split = batch_split._replace(iterations=1, accumulation=batch_split.iterations)
    return LoopProgram(forward, initial_state, loop, batch_split)


def _leaves_out_processes(processes: int) -> bool:
    """Returns whether a program runs in fewer processes than there are."""
    return processes < count_replica_groups()


def scales_loss(rule: Rule) -> bool:
    """Returns whether an optimizer multiplies the loss by a factor."""
    return float(rule.hypers["loss_scaling"]) != 1
