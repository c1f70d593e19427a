"""The unpipelined step: the same model as one function, under plain JAX."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from ipujax.checks.arguments import as_list
from ipujax.errors import PipelineError
from ipujax.gradient_accumulation import GradientAccumulationReductionMethod
from ipujax.optimizers.trained_leaves import initial_state, is_trained
from ipujax.pipelines.model import averages, mapped_by, updated_by
from ipujax.pipelines.request import PipelineRequest
from ipujax.pipelines.stages import Arguments, Pytree, call_stage
from ipujax.pipelines.state import StageOutput, changes, with_changes


class Step(NamedTuple):
    """What the unpipelined step makes of one element.

    Attributes:
      loss: NaN in inference, which has none.
      outputs: None if the reference does not tell.
      gradients: by the variables' names; none in inference.
      untrained: the untrained state after it.
    """

    loss: ArrayLike
    outputs: list[Pytree] | None
    gradients: dict[str, jax.Array]
    untrained: Pytree


@dc.dataclass(frozen=True, eq=False)
class Unpipelined:
    """What a pipeline should compute.

    Attributes:
      request: what the pipeline is asked to do.
      variables: before the step.
      inputs: first arguments of the first stage.
      state: of the optimizer; None for its initial one.
      reference: the model as one function; None for the stages one after the other.
      untrained: the untrained state; None for none.
    """

    request: PipelineRequest
    variables: optax.Params
    inputs: list[Pytree]
    state: Pytree
    reference: Callable[..., Any] | None
    untrained: Pytree

    @property
    def trained(self) -> dict[str, int]:
        """The names of the variables that have gradients, with their places among the leaves."""
        leaves = jax.tree_util.tree_leaves_with_path(self.variables)
        return {
            jax.tree_util.keystr(path): index
            for index, (path, leaf) in enumerate(leaves)
            if is_trained(leaf)
        }

    @functools.cached_property
    def jitted_loss(self) -> Callable[[Sequence[Pytree]], jax.Array]:
        """Outputs of one micro-batch to its loss."""
        return jax.jit(lambda row: self.request.optimizer(*row).loss)

    @functools.cached_property
    def jitted_step(self) -> Callable[..., Step]:
        """As `step`."""
        return jax.jit(self.step)

    @functools.cached_property
    def jitted_update(self) -> Callable[..., tuple[Pytree, Pytree]]:
        """As `update`."""
        return jax.jit(self.update, static_argnames="replicas")

    def losses(self, outputs: Sequence[Sequence[Pytree]]) -> np.ndarray:
        """The loss of each micro-batch, of its outputs."""
        return np.stack([np.asarray(self.jitted_loss(row), np.float64) for row in outputs])

    # --- forward and backward ---------------------------------------------------------------------

    def micro_batches(
        self,
        elements: Sequence[Arguments],
        outputs: Sequence[Sequence[Pytree]],
        replicas: int,
    ) -> list[Step]:
        """What is made of each element.

        Args:
          elements: of the infeed; replicas take turns.
          outputs: the pipeline's for each of them, of which the optimizer is made.
          replicas: how many there are, each with untrained state of its own.
        """
        steps: list[Step] = []
        for number, (element, row) in enumerate(zip(elements, outputs, strict=True)):
            before = steps[number - replicas].untrained if number >= replicas else self.untrained
            steps.append(self.jitted_step(self.variables, before, self.inputs, element, row))
        return steps

    def step(
        self,
        variables: Pytree,
        untrained: Pytree,
        inputs: Sequence[Pytree],
        element: Arguments,
        pipelined: Sequence[Pytree],
    ) -> Step:
        """Loss, outputs, gradients by name and the new untrained state for one element."""
        leaves, structure = jax.tree.flatten(variables)
        arguments = Arguments((*inputs, *element.args), element.kwargs)
        if not self.request.training:
            loss, outputs, after = self.results(variables, untrained, arguments)
            return Step(loss, outputs, {}, after)

        def loss_of(trained: dict[str, jax.Array]) -> tuple[ArrayLike, Any]:
            whole = list(leaves)
            for name, leaf in trained.items():
                whole[self.trained[name]] = leaf
            loss, *others = self.results(structure.unflatten(whole), untrained, arguments)
            if jnp.shape(loss):
                raise PipelineError(
                    f"the reference's loss has the shape {list(jnp.shape(loss))}",
                    fix="return one number, or (loss, outputs)",
                )
            return loss, others

        trained = {name: leaves[index] for name, index in self.trained.items()}
        (loss, others), gradients = jax.value_and_grad(loss_of, has_aux=True)(trained)
        outputs, after = others
        by_place = {self.trained[name]: gradient for name, gradient in gradients.items()}
        zeros = [jnp.zeros_like(leaf) for leaf in leaves]
        tree = structure.unflatten([by_place.get(i, zero) for i, zero in enumerate(zeros)])
        output = self.request.optimizer(*pipelined)
        mapped = structure.flatten_up_to(mapped_by(output, tree, variables))
        by_name = {name: mapped[index] for name, index in self.trained.items()}
        return Step(loss, outputs, by_name, after)

    def results(
        self, variables: Pytree, untrained: Pytree, arguments: Arguments
    ) -> tuple[ArrayLike, list[Pytree] | None, Pytree]:
        """Loss, outputs and new untrained state for one element, as `Step` has them."""
        training = self.request.training
        if self.reference is None:
            for number, parts in enumerate(self.request.stages):
                outputs, changed = call_stage(number, parts, variables, untrained, arguments)
                arguments = Arguments(tuple(outputs), {})
                untrained = with_changes(untrained, changed)
            loss = self.request.optimizer(*arguments.args).loss if training else np.nan
            return loss, list(arguments.args), untrained
        lead = tuple(tree for tree in (variables, untrained) if tree is not None)
        result = self.reference(*lead, *arguments.args, **arguments.kwargs)
        if isinstance(result, StageOutput):
            changed = changes("the reference", untrained, result.state)
            result, untrained = result.outputs, with_changes(untrained, changed)
        if not training:
            return np.nan, as_list(result), untrained
        if not isinstance(result, tuple):
            return result, None, untrained
        if len(result) != 2:
            raise PipelineError(
                f"the reference returned {len(result)} values",
                fix="return the loss, or (loss, outputs)",
            )
        return result[0], as_list(result[1]), untrained

    # --- the weight update ------------------------------------------------------------------------

    def reduced(self, each: np.ndarray) -> np.ndarray:
        """Micro-batches' numbers as `reduction_method` makes them one."""
        is_sum = self.request.reduction is GradientAccumulationReductionMethod.SUM
        return each.sum(axis=0) if is_sum else each.mean(axis=0)

    def update(
        self, gradients: Pytree, summed: Pytree, last: Sequence[Pytree], *, replicas: int
    ) -> tuple[Pytree, Pytree]:
        """New variables and state, by a plain call of the optimizer.

        Args:
          gradients: of replica 0, accumulated.
          summed: those of all replicas together.
          last: the last stage's outputs for the last micro-batch.
          replicas: how many there are.
        """
        output = self.request.optimizer(*last)
        state = self.state
        if state is None:
            state = initial_state(output.opt, self.variables)
        if replicas > 1 and averages(output.opt):
            gradients = jax.tree.map(lambda total: total / replicas, summed)
        dtype_of = self.request.accumulation_dtype

        def cast_gradient(gradient: jax.Array, variable: jax.Array) -> jax.Array:
            if not is_trained(variable):
                return gradient
            return gradient.astype(dtype_of(jax.typeof(variable)))

        cast = jax.tree.map(cast_gradient, gradients, self.variables)
        return updated_by(output, cast, jax.tree.map(jnp.asarray, state), self.variables)
