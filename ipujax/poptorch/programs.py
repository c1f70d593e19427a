"""A traced module as a program on virtual IPUs: what a wrapper runs when it is called."""

from __future__ import annotations

import abc
import dataclasses as dc
from collections.abc import Hashable, Sequence
from typing import Any, cast

import jax
import numpy as np
import optax
import torch

from ipujax.distribution.collectives import sent_by
from ipujax.distribution.join import instance_count
from ipujax.doors.graphs import Named
from ipujax.driver.compiler import compile
from ipujax.driver.contexts import read_compile_context
from ipujax.driver.stages import Executable
from ipujax.frontends.pytorch.arrays import to_numpy
from ipujax.pipelining_ops import OptimizerFunctionOutput, RecomputationMode
from ipujax.poptorch.checks import check
from ipujax.poptorch.forward import Forward
from ipujax.poptorch.gradient_statistics import check_half, count_gradients
from ipujax.poptorch.optim.rules import Rule
from ipujax.poptorch.reductions import Reductions
from ipujax.poptorch.shares import Shares
from ipujax.poptorch.stages import check_depth
from ipujax.training import Inference, Pipeline, StepOutput, Training, TrainState
from ipujax.training.device_loop import DeviceLoop
from ipujax.training.loss_scaling import Scale, factors_in
from ipujax.training.state import on_device

_Result = tuple[Any, Named | None, Any, Named]
"""What is sent, variables, state of the optimizer, and what is new of the untrained state."""


class Program(abc.ABC):
    """A program, and what it has on the device.

    Attributes:
      forward: the module's.
      state: variables and the like; as trained so far.
    """

    def __init__(self, forward: Forward, state: TrainState):
        self.forward, self.state = forward, state

    @property
    @abc.abstractmethod
    def executable(self) -> Executable | None:
        """As it was compiled last; None before."""

    @abc.abstractmethod
    def compile(self, tensors: Sequence[torch.Tensor], keys: np.ndarray) -> Executable:
        """Makes it ready for inputs of these shapes."""

    @abc.abstractmethod
    def run(self, tensors: Sequence[torch.Tensor], keys: np.ndarray) -> list[np.ndarray]:
        """What each micro-batch gives.

        Args:
          tensors: of the combined batch.
          keys: for each micro-batch the data of its key, `uint32[2]`.

        Returns:
          Leaves `[micro-batch, ...]` in the order of the inputs: see `Forward`.
        """

    def begin_alike(self) -> None:
        """Gives all processes that run the program what the first one has."""
        now = self.state
        parts = now.variables, now.optimizer_state, now.state
        variables, optimizer_state, state = on_device(sent_by(0, parts))
        self.state = TrainState(variables, optimizer_state, state, now.step)

    @property
    def variables(self) -> Named:
        """The values that all parameters and buffers have on the device; the first replica's."""
        values = {**self.state.variables, **self.state.state}
        return values | {name: values[name][0] for name in self.forward.own}

    def load(self, values: Named) -> None:
        """Gives them others."""
        variables, state = on_device(self.forward.sorted({**self.variables, **values}))
        self.state = dc.replace(self.state, variables=variables, state=state)

    @property
    def optimizer_state(self) -> Any:
        """What the optimizer's rule keeps; may be set."""
        return self.state.optimizer_state

    @optimizer_state.setter
    def optimizer_state(self, state: Any) -> None:
        variables = self.state.variables
        if "scale" in state:
            variables = variables | dict.fromkeys(factors_in(variables), state["scale"].factor)
        self.state = dc.replace(
            self.state, variables=on_device(variables), optimizer_state=on_device(state)
        )


class LoopProgram(Program):
    """Micro-batches in a loop on the device."""

    def __init__(self, forward: Forward, state: TrainState, loop: DeviceLoop, shares: Shares):
        super().__init__(forward, state)
        self._loop, self._shares = loop, shares

    @property
    def executable(self) -> Executable | None:
        """As `Program.executable`."""
        return self._loop.executable

    def compile(self, tensors: Sequence[Any], keys: np.ndarray) -> Executable:
        """As `Program.compile`."""
        elements = self._shares.elements(tensors, keys)
        return self._loop.compile(self.state, elements, self._steps)

    def run(self, tensors: Sequence[Any], keys: np.ndarray) -> list[np.ndarray]:
        """As `Program.run`."""
        elements = self._shares.elements(tensors, keys)
        advance = self._loop.advance(self.state, elements, self._steps)
        self.state = advance.state
        lead = 2 if self._shares.replicas > 1 else 1
        leaves = map(np.asarray, jax.tree.leaves(advance.results))
        return [leaf.reshape(self._shares.count, *leaf.shape[lead:]) for leaf in leaves]

    @property
    def _steps(self) -> int:
        return self._shares.iterations


class CallProgram(Program):
    """One micro-batch, without queues: the way with the least between a call and its result.

    Args:
      forward: the module's.
      state: to begin with.
      rule: of the optimizer; None in inference.
      name: the program's.
    """

    def __init__(self, forward: Forward, state: TrainState, rule: Rule | None, name: str):
        super().__init__(forward, state)
        self._rule = rule
        step = self._infer if rule is None else self._train
        self._function = compile(step, name=name, replicas=1, alone=_is_alone(1))
        self._executable: Executable | None = None
        self._context: Hashable = None  # of JAX, that it was compiled under

    def _infer(self, variables: Named, _: None, state: Named, *element: Any) -> _Result:
        output = self.forward(variables, state, *element)
        return output.send, None, None, _changed(state, output)

    def _train(self, variables: Named, optimizer: Any, state: Named, *element: Any) -> _Result:
        gradients, output = self.forward.differentiate(variables, optimizer, state, *element)
        rule = cast(Rule, self._rule).optimizer
        updates, optimizer = rule.update(gradients, optimizer, variables)
        variables = cast(Named, optax.apply_updates(variables, updates))
        return output.send, variables, optimizer, _changed(state, output)

    @property
    def executable(self) -> Executable | None:
        """As `Program.executable`."""
        return self._executable

    def compile(self, tensors: Sequence[torch.Tensor], keys: np.ndarray) -> Executable:
        """As `Program.compile`."""
        self._executable = self._function.lower(*self._arguments(tensors, keys)).compile()
        self._context = read_compile_context()
        return self._executable

    def run(self, tensors: Sequence[torch.Tensor], keys: np.ndarray) -> list[np.ndarray]:
        """As `Program.run`."""
        executable = self._executable
        if executable is None or self._context != read_compile_context():
            executable = self.compile(tensors, keys)
        send, variables, optimizer, changed = executable(*self._arguments(tensors, keys))
        before = self.state
        if self._rule is not None:
            after = {**before.state, **changed}
            self.state = TrainState(variables, optimizer, after, before.step + 1)
        elif changed:
            self.state = dc.replace(before, state={**before.state, **changed})
        return [np.asarray(leaf)[None] for leaf in send]

    def _arguments(self, tensors: Sequence[torch.Tensor], keys: np.ndarray) -> tuple[Any, ...]:
        state = self.state
        scale = []
        if self.forward.is_scaled:
            scale.append(cast(Rule, self._rule).loss_scale(state.optimizer_state))
        given = [*scale, *map(to_numpy, tensors), keys[0]]
        return state.variables, state.optimizer_state, state.state, *given


def _changed(before: Named, output: StepOutput) -> Named:
    """What a step has changed of the untrained state."""
    return {n: x for n, x in cast(Named, output.state).items() if x is not before[n]}


def training_program(
    forward: Forward, rule: Rule, reductions: Reductions, shares: Shares, values: Named, name: str
) -> Program:
    """A program that trains.

    Args:
      forward: the module's.
      rule: of the optimizer.
      reductions: of gradients.
      shares: of a combined batch.
      values: of its parameters and buffers.
      name: the program's.
    """
    forward = dc.replace(forward, is_scaled=scales_loss(rule))
    if rule.scaling is not None:
        check_half(forward.module)
        counting = count_gradients(rule.scaling, forward.placement)
        forward = dc.replace(forward, counting=counting)
        values = values | dict.fromkeys(counting.factors.names, Scale.begin().factor)
    variables, state = forward.sorted(values)
    given = TrainState(*on_device((variables, rule.optimizer.init(variables), state)))
    is_pipelined = forward.placement.is_pipelined
    if shares.count == forward.replicas == 1 and not is_pipelined:
        return CallProgram(forward, given, rule, name)
    if is_pipelined and forward.gradients_of:
        raise check.refuse(
            "gradients cannot be anchored in a pipeline, whose stages have them one after another",
            "use ShardedExecution, or anchor UpdatedVar___ and the parameter's path",
        )

    def optimizer(loss: jax.Array, *_: Any) -> OptimizerFunctionOutput:
        return OptimizerFunctionOutput(rule.optimizer, loss)

    loop = Training(
        _pipeline(forward, shares.accumulation) if is_pipelined else forward.differentiable,
        optimizer if is_pipelined else rule.optimizer,
        accumulation=shares.accumulation,
        accumulation_dtype=rule.accumulator,
        reduction_method=reductions.micro_batches,
        replica_reduction=reductions.replicas,
        inputs=(lambda now: [rule.loss_scale(now.optimizer_state)]) if forward.is_scaled else None,
        name=name,
        replicas=shares.replicas,
        alone=_is_alone(shares.processes),
    )
    return LoopProgram(forward, given, loop, shares)


def _pipeline(forward: Forward, accumulation: int) -> Pipeline:
    """The stages of a training, with so many micro-batches in a weight update."""
    check_depth(forward.placement, accumulation)
    # The mode that heeds `recomputationCheckpoint`, if there is recomputation at all.
    mode = RecomputationMode.RecomputeAndBackpropagateInterleaved
    return forward.pipeline(recomputation_mode=mode)


def inference_program(forward: Forward, shares: Shares, values: Named, name: str) -> Program:
    """A program that gives outputs, which every process runs by itself.

    Arguments as those of `training_program`.
    """
    is_pipelined = forward.placement.is_pipelined
    if shares.count == 1 and is_pipelined:
        forward = dc.replace(forward, placement=forward.placement.in_turn())
    variables, state = forward.sorted(values)
    given = TrainState(*on_device((variables, None, state)))
    if shares.count == 1:
        return CallProgram(forward, given, None, name)
    options: Any = {"name": name, "replicas": shares.replicas, "alone": _is_alone(1)}
    if not is_pipelined:
        return LoopProgram(forward, given, Inference(forward, **options), shares)
    count = shares.iterations
    loop = Inference(forward.pipeline(), accumulation=count, **options)
    return LoopProgram(forward, given, loop, shares._replace(iterations=1, accumulation=count))


def _is_alone(processes: int) -> bool:
    """Whether a program that so many processes share is not all processes'."""
    return processes < instance_count()


def scales_loss(rule: Rule) -> bool:
    """Whether an optimizer wants the loss multiplied by something."""
    return float(rule.hypers["loss_scaling"]) != 1
