"""The unpipelined step: the same model as one function, under plain JAX."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ipujax.errors import PipelineError
from ipujax.gradient_accumulation import GradientAccumulationReductionMethod
from ipujax.optimizers import (
    CrossReplicaOptimizer,
    IpuOptimizer,
    apply_gradients,
    compute_gradients,
)
from ipujax.pipelines.model import OptimizerFunctionOutput, checked_output
from ipujax.pipelines.settings import Settings
from ipujax.pipelines.stages import as_outputs

Element = tuple[tuple[Any, ...], dict[str, Any]]
"""What the infeed adds to the first stage's arguments: positional ones, and those by keyword."""


@dc.dataclass(frozen=True, eq=False)
class Unpipelined:
    """What a pipeline should compute.

    Attributes:
      settings: of the pipeline.
      variables: before the step.
      inputs: first arguments of the first stage.
      state: of the optimizer; None for its initial one.
      reference: the model as one function; None for the stages one after the other.
    """

    settings: Settings
    variables: Any
    inputs: list[Any]
    state: Any
    reference: Callable[..., Any] | None

    @property
    def trained(self) -> dict[str, int]:
        """The names of the variables that have gradients, with their places among the leaves."""
        leaves = jax.tree_util.tree_leaves_with_path(self.variables)
        return {
            jax.tree_util.keystr(path): index
            for index, (path, leaf) in enumerate(leaves)
            if jnp.issubdtype(leaf.dtype, jnp.floating)
        }

    def optimizer(self, *outputs: Any) -> OptimizerFunctionOutput:
        """What the user's optimizer function gives for the last stage's outputs."""
        function = self.settings.optimizer_function
        if function is None:
            raise PipelineError("an inference pipeline has no optimizer")
        return checked_output(function(*outputs))

    @functools.cached_property
    def jitted_loss(self) -> Any:
        """Outputs of one micro-batch to its loss."""
        return jax.jit(lambda row: self.optimizer(*row).loss)

    @functools.cached_property
    def jitted_step(self) -> Any:
        """As `step`."""
        return jax.jit(self.step)

    @functools.cached_property
    def jitted_update(self) -> Any:
        """As `update`."""
        return jax.jit(self.update, static_argnames="replicas")

    def losses(self, outputs: Sequence[Any]) -> np.ndarray:
        """The loss of each micro-batch, of its outputs."""
        return np.stack([np.asarray(self.jitted_loss(row), np.float64) for row in outputs])

    # --- forward and backward ---------------------------------------------------------------------

    def micro_batches(self, elements: Sequence[Element], outputs: Sequence[Any]) -> list[Any]:
        """(loss, outputs, gradients by name) for each element.

        Args:
          elements: of the infeed.
          outputs: the pipeline's for each of them, of which the optimizer is made.
        """
        return [
            self.jitted_step(self.variables, self.inputs, *element, own)
            for element, own in zip(elements, outputs, strict=True)
        ]

    def step(
        self, variables: Any, inputs: Any, args: Any, kwargs: Any, pipelined: Any
    ) -> tuple[Any, Any, Any]:
        """Loss, outputs and gradients for one element."""
        leaves, tree = jax.tree.flatten(variables)
        if not self.settings.training:
            return *self.results(variables, inputs, args, kwargs), None

        def loss_of(trained: dict[str, Any]) -> tuple[Any, Any]:
            whole = list(leaves)
            for name, leaf in trained.items():
                whole[self.trained[name]] = leaf
            own = jax.tree.unflatten(tree, whole)
            loss, outputs = self.results(own, inputs, args, kwargs)
            if jnp.shape(loss):
                raise PipelineError(
                    f"the reference's loss has the shape {list(jnp.shape(loss))}",
                    fix="return one number, or (loss, outputs)",
                )
            return loss, outputs

        own = {name: leaves[index] for name, index in self.trained.items()}
        (loss, outputs), gradients = jax.value_and_grad(loss_of, has_aux=True)(own)
        output = self.optimizer(*pipelined)
        mapped = compute_gradients(
            output.opt,
            gradients,
            own,
            *output.compute_gradients_args,
            **output.compute_gradients_kwargs,
        )
        return loss, outputs, mapped

    def results(self, variables: Any, inputs: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The loss and the outputs for one element; None for what the reference does not tell."""
        if self.reference is None:
            outputs = self.composed(variables, inputs, args, kwargs)
            return self.optimizer(*outputs).loss if self.settings.training else None, outputs
        lead = () if variables is None else (variables,)
        result = self.reference(*lead, *inputs, *args, **kwargs)
        if not self.settings.training:
            return None, as_outputs(result)
        if not isinstance(result, tuple):
            return result, None
        if len(result) != 2:
            raise PipelineError(
                f"the reference returned {len(result)} values",
                fix="return the loss, or (loss, outputs)",
            )
        return result[0], as_outputs(result[1])

    def composed(self, variables: Any, inputs: Any, args: Any, kwargs: Any) -> list[Any]:
        """The last stage's outputs, from the stages called one after the other."""
        lead = () if variables is None else (variables,)
        given, named = [*inputs, *args], dict(kwargs)
        for parts in self.settings.stages:
            made = [as_outputs(part.function(*lead, *given, **named)) for part in parts]
            given, named = [output for outputs in made for output in outputs], {}
        return given

    # --- the weight update ------------------------------------------------------------------------

    def reduced(self, each: np.ndarray) -> np.ndarray:
        """Micro-batches' numbers as `reduction_method` makes them one."""
        is_sum = self.settings.reduction is GradientAccumulationReductionMethod.SUM
        return each.sum(axis=0) if is_sum else each.mean(axis=0)

    def update(self, gradients: Any, summed: Any, last: Any, *, replicas: int) -> tuple[Any, Any]:
        """New variables and state, by a plain call of the optimizer.

        Args:
          gradients: of replica 0, accumulated.
          summed: those of all replicas together.
          last: the last stage's outputs for the last micro-batch.
          replicas: how many there are.
        """
        output = self.optimizer(*last)
        state = output.opt.init(self.variables) if self.state is None else self.state
        if replicas > 1 and _averages(output.opt):
            gradients = jax.tree.map(lambda g: g / replicas, summed)
        dtype_of = self.settings.accumulation_dtype
        updates, state = apply_gradients(
            output.opt,
            jax.tree.map(lambda g, v: g.astype(dtype_of(jax.typeof(v))), gradients, self.variables),
            jax.tree.map(jnp.asarray, state),
            self.variables,
            *output.apply_gradients_args,
            **output.apply_gradients_kwargs,
        )
        return optax.apply_updates(self.variables, updates), state


def _averages(opt: Any) -> bool:
    """Whether an optimizer averages gradients over the replicas."""
    if isinstance(opt, CrossReplicaOptimizer):
        return True
    return isinstance(opt, IpuOptimizer) and _averages(opt.wrapped)
