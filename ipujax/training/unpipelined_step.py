"""The reference of `check_pipeline`: the same model as one function under plain JAX."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from ipujax.ground import PipelineError, PyTree, as_list
from ipujax.optimizers import (
    GradientAccumulationReductionMethod,
    has_gradient,
    init_optimizer_state,
)
from ipujax.pipelines import (
    Arguments,
    PipelineRequest,
    Pytree,
    StageOutput,
    apply_update,
    call_stage,
    combines_replica_gradients,
    compute_mapped_gradients,
    find_changed_leaves,
    replace_leaves,
)


class Step(NamedTuple):
    """The results of the unpipelined step for one element.

    Attributes:
      loss: NaN in inference, which has none.
      outputs: None if the reference does not tell.
      gradients: the gradients by the variables' names; empty in inference.
      untrained: the untrained state after it.
    """

    loss: ArrayLike
    outputs: list[Pytree] | None
    gradients: dict[str, jax.Array]
    untrained: Pytree


@dc.dataclass(frozen=True, eq=False)
class Unpipelined:
    """The model of a pipeline as one unpipelined function.

    Attributes:
      request: what the pipeline is asked to do.
      variables: before the step.
      inputs: first arguments of the first stage.
      state: the state of the optimizer, or None for its initial state.
      reference: the model as one function; None for the stages one after the other.
      untrained: the untrained state; None for none.
    """

    request: PipelineRequest
    variables: optax.Params
    inputs: list[Pytree]
    state: Pytree
    reference: Callable[..., PyTree] | None
    untrained: Pytree

    @property
    def trained_leaf_numbers(self) -> dict[str, int]:
        """The names of the variables that have gradients, with their numbers among the leaves."""
        leaves = jax.tree_util.tree_leaves_with_path(self.variables)
        return {
            jax.tree_util.keystr(path): index
            for index, (path, leaf) in enumerate(leaves)
            if has_gradient(leaf)
        }

    @functools.cached_property
    def jitted_loss(self) -> Callable[[Sequence[Pytree]], jax.Array]:
        """The jitted function from the outputs of one micro-batch to its loss."""
        return jax.jit(self._compute_loss)

    @functools.cached_property
    def jitted_step(self) -> Callable[..., Step]:
        """The jitted form of `compute_step_of_element`."""
        return jax.jit(self.compute_step_of_element)

    @functools.cached_property
    def jitted_update(self) -> Callable[..., tuple[Pytree, Pytree]]:
        """The jitted form of `update_variables`."""
        return jax.jit(self.update_variables, static_argnames="replicas")

    def _compute_loss(self, row: Sequence[Pytree]) -> jax.typing.ArrayLike:
        return self.request.call_optimizer_function(*row).loss

    def compute_losses(self, outputs: Sequence[Sequence[Pytree]]) -> np.ndarray:
        """Computes the loss of each micro-batch from its outputs."""
        return np.stack([np.asarray(self.jitted_loss(row), np.float64) for row in outputs])

    # --- forward and backward ---------------------------------------------------------------------

    def run_micro_batches(
        self,
        elements: Sequence[Arguments],
        outputs: Sequence[Sequence[Pytree]],
        replicas: int,
    ) -> list[Step]:
        """Runs the step for each element, with its untrained state per replica.

        Args:
          elements: the elements of the infeed; replicas take turns.
          outputs: the pipeline's for each of them, of which the optimizer is made.
          replicas: how many there are, each with untrained state of its own.
        """
        steps: list[Step] = []
        for number, (element, row) in enumerate(zip(elements, outputs, strict=True)):
            old_untrained = (
                steps[number - replicas].untrained if number >= replicas else self.untrained
            )
            steps.append(self.jitted_step(self.variables, old_untrained, self.inputs, element, row))
        return steps

    def compute_step_of_element(
        self,
        variables: Pytree,
        untrained: Pytree,
        inputs: Sequence[Pytree],
        element: Arguments,
        pipelined: Sequence[Pytree],
    ) -> Step:
        """Computes the loss, outputs, gradients and new untrained state for one element."""
        leaves, structure = jax.tree.flatten(variables)
        arguments = Arguments((*inputs, *element.args), element.kwargs)
        if not self.request.is_training:
            loss, outputs, new_untrained = self.compute_outputs_of_element(
                variables, untrained, arguments
            )
            return Step(loss, outputs, {}, new_untrained)

        def reference_loss(trained: dict[str, jax.Array]) -> tuple[ArrayLike, object]:
            all_leaves = list(leaves)
            for name, leaf in trained.items():
                all_leaves[self.trained_leaf_numbers[name]] = leaf
            loss, *outputs_and_state = self.compute_outputs_of_element(
                structure.unflatten(all_leaves), untrained, arguments
            )
            if jnp.shape(loss):
                raise PipelineError(
                    f"the reference's loss has the shape {list(jnp.shape(loss))}",
                    fix="return one number, or (loss, outputs)",
                )
            return loss, outputs_and_state

        trained = {name: leaves[index] for name, index in self.trained_leaf_numbers.items()}
        (loss, others), gradients = jax.value_and_grad(reference_loss, has_aux=True)(trained)
        outputs, new_untrained = others
        by_place = {
            self.trained_leaf_numbers[name]: gradient for name, gradient in gradients.items()
        }
        zeros = [jnp.zeros_like(leaf) for leaf in leaves]
        tree = structure.unflatten([by_place.get(i, zero) for i, zero in enumerate(zeros)])
        output = self.request.call_optimizer_function(*pipelined)
        mapped = structure.flatten_up_to(compute_mapped_gradients(output, tree, variables))
        by_name = {name: mapped[index] for name, index in self.trained_leaf_numbers.items()}
        return Step(loss, outputs, by_name, new_untrained)

    def compute_outputs_of_element(
        self, variables: Pytree, untrained: Pytree, arguments: Arguments
    ) -> tuple[ArrayLike, list[Pytree] | None, Pytree]:
        """Computes the loss, outputs and new untrained state for one element."""
        training = self.request.is_training
        if self.reference is None:
            for number, parts in enumerate(self.request.stages):
                outputs, changed = call_stage(number, parts, variables, untrained, arguments)
                arguments = Arguments(tuple(outputs), {})
                untrained = replace_leaves(untrained, changed)
            loss = (
                self.request.call_optimizer_function(*arguments.args).loss if training else np.nan
            )
            return loss, list(arguments.args), untrained
        lead = tuple(tree for tree in (variables, untrained) if tree is not None)
        result = self.reference(*lead, *arguments.args, **arguments.kwargs)
        if isinstance(result, StageOutput):
            changed = find_changed_leaves("the reference", untrained, result.state)
            result, untrained = result.outputs, replace_leaves(untrained, changed)
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

    def reduce_micro_batches(self, per_micro_batch: np.ndarray) -> np.ndarray:
        """Combines the numbers of micro-batches as `reduction_method` says."""
        is_sum = self.request.reduction is GradientAccumulationReductionMethod.SUM
        return per_micro_batch.sum(axis=0) if is_sum else per_micro_batch.mean(axis=0)

    def update_variables(
        self, gradients: Pytree, summed: Pytree, last: Sequence[Pytree], *, replicas: int
    ) -> tuple[Pytree, Pytree]:
        """Computes new variables and optimizer state by a plain call of the optimizer.

        Args:
          gradients: the accumulated gradients of replica 0.
          summed: the sum of the gradients of all replicas.
          last: the last stage's outputs for the last micro-batch.
          replicas: how many there are.
        """
        output = self.request.call_optimizer_function(*last)
        state = self.state
        if state is None:
            state = init_optimizer_state(output.opt, self.variables)
        if replicas > 1 and combines_replica_gradients(output.opt):
            gradients = jax.tree.map(lambda total: total / replicas, summed)
        dtype_of = self.request.accumulator_dtype_of

        def cast_gradient(gradient: jax.Array, variable: jax.Array) -> jax.Array:
            if not has_gradient(variable):
                return gradient
            return gradient.astype(dtype_of(jax.typeof(variable)))

        cast = jax.tree.map(cast_gradient, gradients, self.variables)
        return apply_update(output, cast, jax.tree.map(jnp.asarray, state), self.variables)
