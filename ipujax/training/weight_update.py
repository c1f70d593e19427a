"""One weight update on the device: the gradients of micro-batches, then the optimizer."""

from __future__ import annotations

import dataclasses as dc
import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from ipujax.ground import PyTree
from ipujax.host import IPUInfeedQueue, IPUOutfeedQueue
from ipujax.operators import cross_replica_mean, loops
from ipujax.optimizers import (
    CrossReplicaOptimizer,
    Summation,
    SummingOptimizer,
    add_to_accumulator,
    apply_gradients,
    apply_updates,
    drop_untrained_gradients,
    has_gradient,
)
from ipujax.optimizers import GradientAccumulationReductionMethod as Reduction
from ipujax.optimizers import compute_gradients as mapped_gradients
from ipujax.training.training_checks import check
from ipujax.training.training_state import StepOutput, Tree

LoopCarry = tuple[Tree, Tree, Tree]
"""The carry of a training loop: variables, optimizer state, untrained state."""


class ReplicaReduction(enum.Enum):
    """The reduction of gradients over replicas, before the optimizer sees them.

    NONE: gradients are not reduced, unless the optimizer itself does so.
    MEAN: gradients are averaged, as by a `CrossReplicaOptimizer`.
    SUM: gradients are added up.
    """

    NONE = 0
    MEAN = 1
    SUM = 2


def wrap_with_replica_reduction(optimizer: object, reduction: ReplicaReduction) -> Any:
    """Returns the optimizer, with gradients reduced over the replicas in front of it."""
    if reduction is ReplicaReduction.NONE:
        return optimizer
    if reduction is ReplicaReduction.MEAN:
        return CrossReplicaOptimizer(optimizer)
    return SummingOptimizer(optimizer, Summation.REPLICAS)


def average_state_over_replicas(state: Tree) -> Tree:
    """Returns the mean over all replicas of the untrained state."""

    def average_leaf(leaf: jax.Array) -> jax.Array:
        return cross_replica_mean(leaf) if has_gradient(leaf) else leaf

    return jax.tree.map(average_leaf, state)


@check.guard
@dc.dataclass(frozen=True)
class SelfDifferentiating:
    """A model that computes its gradients itself.

    Attributes:
      gradients: `gradients(variables, optimizer_state, state, *inputs, *element)` (without `state`
        if that is None) gives the gradients of the variables and a `StepOutput`, whose loss is
        only sent.
    """

    gradients: Callable[..., tuple[Tree, StepOutput]]

    def __post_init__(self) -> None:
        check.require_function(self.gradients, "the gradients of a SelfDifferentiating model")


@dc.dataclass(frozen=True)
class WeightUpdate:
    """A weight update of a model that is one function.

    Attributes:
      model: the model, as in `Training.model`.
      optimizer: the optimizer of all steps that have none of their own.
      replica_reduction: the reduction of gradients over replicas, in front of the optimizer.
      count: the number of micro-batches.
      reduction: the reduction of the micro-batches' gradients.
      dtype: returns the dtype of a variable's accumulator.
      queues: the infeed, which has an element for each micro-batch, and the outfeed.
    """

    model: Callable[..., Tree] | SelfDifferentiating
    optimizer: Any
    replica_reduction: ReplicaReduction
    count: int
    reduction: Reduction
    dtype: Callable[[jax.Array], DTypeLike]
    queues: tuple[IPUInfeedQueue, IPUOutfeedQueue]

    def repeat_updates(self, steps: int, carry: LoopCarry, inputs: Sequence[Tree]) -> LoopCarry:
        """Runs the loop over weight updates."""
        infeed = self.queues[0]

        def update_once(
            variables: Tree, optimizer_state: Tree, state: Tree, *element: Tree, **by_name: Tree
        ) -> LoopCarry:
            optimizer, gradients, state = self.compute_micro_batch_gradients(
                (variables, optimizer_state, state), [*inputs, *element], by_name
            )
            return *_apply_optimizer(optimizer, gradients, variables, optimizer_state), state

        def accumulate_and_update(
            variables: Tree, optimizer_state: Tree, state: Tree, done: Tree
        ) -> tuple[Tree, ...]:
            sums, state = self.accumulate_update_gradients(
                (variables, optimizer_state, state, done), inputs
            )
            optimizer = wrap_with_replica_reduction(self.optimizer, self.replica_reduction)
            return *_apply_optimizer(optimizer, sums, variables, optimizer_state), state, done + 1

        if self.count == 1:
            return loops.repeat(steps, update_once, list(carry), infeed)
        return loops.repeat(steps, accumulate_and_update, [*carry, jnp.int32(0)])[:3]

    def compute_micro_batch_gradients(
        self, carry: LoopCarry, element: Sequence[Tree], by_name: dict[str, Tree]
    ) -> tuple[PyTree, Tree, Tree]:
        """Returns optimizer, gradients and new state of one micro-batch; sends its result.

        Args:
          carry: variables, the optimizer's state before the update, untrained state.
          element: the inputs, and the infeed's element by position.
          by_name: the infeed's element by keyword.
        """
        variables, optimizer_state, state = carry
        state_argument = [] if state is None else [state]
        if isinstance(self.model, SelfDifferentiating):
            gradients, output = self.model.gradients(
                variables, optimizer_state, *state_argument, *element, **by_name
            )
            return self._send_result_and_map_gradients(self.optimizer, gradients, variables, output)
        model = self.model
        optimizers: list[object] = []  # no arrays, which differentiation could hand on

        def compute_loss_and_output(variables: Tree) -> tuple[PyTree, StepOutput]:
            output = model(variables, *state_argument, *element, **by_name)
            output = output if isinstance(output, StepOutput) else StepOutput(output)
            optimizers.append(self.optimizer if output.optimizer is None else output.optimizer)
            return output.loss, output._replace(optimizer=None)

        (loss, output), gradients = differentiate_loss(compute_loss_and_output, variables)
        return self._send_result_and_map_gradients(
            optimizers[-1], gradients, variables, output._replace(loss=loss)
        )

    def _send_result_and_map_gradients(
        self, optimizer: Any, gradients: Tree, variables: Tree, output: StepOutput
    ) -> tuple[PyTree, Tree, Tree]:
        self.queues[1].enqueue(output.loss if output.send is None else output.send)
        optimizer = wrap_with_replica_reduction(optimizer, self.replica_reduction)
        gradients = drop_untrained_gradients(gradients, variables)
        return optimizer, mapped_gradients(optimizer, gradients, variables), output.state

    def accumulate_update_gradients(
        self, outer_carry: Sequence[Tree], inputs: Sequence[Tree]
    ) -> tuple[Tree, Tree]:
        """Returns the reduced gradients of all micro-batches of an update, and the new state.

        The carry of the outer loop, with the number of its steps so far, comes first and passes
        through this loop unchanged: where the data ends in this loop, training goes on from it.
        """
        method, count = self.reduction, self.count
        is_running_mean = method is Reduction.RUNNING_MEAN
        zeros = jax.tree.map(lambda v: jnp.zeros(v.shape, self.dtype(v)), outer_carry[0])
        zeros = drop_untrained_gradients(zeros, outer_carry[0])

        def micro_batch(  # reports name the variables after its parameters
            variables: Tree,
            optimizer_state: Tree,
            before: Tree,
            done: Tree,
            state: Tree,
            gradient_sum: Tree,
            number: Tree,
            *element: Tree,
            **by_name: Tree,
        ) -> tuple[Tree, ...]:
            carry = variables, optimizer_state, state
            _, gradients, state = self.compute_micro_batch_gradients(
                carry, [*inputs, *element], by_name
            )
            add = functools.partial(
                add_to_accumulator, method=method, count=count, num_added=number
            )
            sums = jax.tree.map(add, gradient_sum, gradients)
            next_number = number + 1 if is_running_mean else None
            return variables, optimizer_state, before, done, state, sums, next_number

        initial = [*outer_carry, outer_carry[2], zeros, jnp.int32(0) if is_running_mean else None]
        final = loops.repeat(count, micro_batch, initial, self.queues[0])
        return final[5], final[4]


def differentiate_loss(
    loss_function: Callable[[Tree], tuple[PyTree, PyTree]], variables: Tree
) -> PyTree:
    """Returns a loss with its auxiliary outputs, and the gradients of trained variables.

    Args:
      loss_function: variables -> the loss, and auxiliary outputs.
      variables: a pytree; leaves that are neither of float nor of complex have no gradient.

    Returns:
      `(loss, auxiliary), gradients`; the gradient of a leaf that is not trained is None.
    """
    leaves, structure = jax.tree.flatten(variables)
    trained_indices = [index for index, leaf in enumerate(leaves) if has_gradient(leaf)]

    def compute_loss_of_trained(trained: list[jax.Array]) -> tuple[PyTree, PyTree]:
        leaf_of_index = dict(zip(trained_indices, trained, strict=True))
        return loss_function(
            structure.unflatten([leaf_of_index.get(i, x) for i, x in enumerate(leaves)])
        )

    differentiate = jax.value_and_grad(compute_loss_of_trained, has_aux=True)
    result, trained_gradients = differentiate([leaves[place] for place in trained_indices])
    gradients = dict(zip(trained_indices, trained_gradients, strict=True))
    return result, structure.unflatten([gradients.get(i) for i in range(len(leaves))])


def _apply_optimizer(
    optimizer: Any, gradients: Tree, variables: Tree, state: Tree
) -> tuple[Tree, Tree]:
    """Returns the new variables, and the optimizer's new state."""
    updates, state = apply_gradients(optimizer, gradients, state, variables)
    return apply_updates(variables, updates), state
