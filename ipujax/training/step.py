"""One weight update on the device: gradients of some micro-batches, then the optimizer."""

from __future__ import annotations

import dataclasses as dc
import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax import loops
from ipujax.cross_replica_ops import cross_replica_mean
from ipujax.distribution.summation import Summation
from ipujax.gradient_accumulation import GradientAccumulationReductionMethod as Reduction
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedQueue
from ipujax.optimizers import CrossReplicaOptimizer, apply_gradients
from ipujax.optimizers import compute_gradients as mapped_gradients
from ipujax.optimizers.accumulation import added
from ipujax.optimizers.summing_optimizer import SummingOptimizer
from ipujax.optimizers.trained_leaves import apply_updates, is_trained, without_untrained
from ipujax.training.checks import check
from ipujax.training.state import StepOutput, Tree

Carried = tuple[Tree, Tree, Tree]
"""What a training loop carries: variables, optimizer state, untrained state."""


class ReplicaReduction(enum.Enum):
    """What becomes of the gradients of several replicas before the optimizer sees them.

    NONE: each replica goes its own way, unless the optimizer itself reduces them.
    MEAN: as a `CrossReplicaOptimizer` does.
    SUM: they are added up.
    """

    NONE = 0
    MEAN = 1
    SUM = 2


def reduced(optimizer: Any, reduction: ReplicaReduction) -> Any:
    """The optimizer, with gradients reduced over the replicas in front of it."""
    if reduction is ReplicaReduction.NONE:
        return optimizer
    if reduction is ReplicaReduction.MEAN:
        return CrossReplicaOptimizer(optimizer)
    return SummingOptimizer(optimizer, Summation.REPLICAS)


def averaged_state(state: Tree) -> Tree:
    """The untrained state as all replicas leave it: the mean of what each one has."""

    def mean(leaf: jax.Array) -> jax.Array:
        return cross_replica_mean(leaf) if is_trained(leaf) else leaf

    return jax.tree.map(mean, state)


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
        check.function(self.gradients, "the gradients of a SelfDifferentiating model")


@dc.dataclass(frozen=True)
class Step:
    """A weight update of a model that is one function.

    Attributes:
      model: as `Training.model`.
      optimizer: for all steps that bring none of their own.
      replica_reduction: of gradients, in front of the optimizer.
      count: micro-batches.
      reduction: of their gradients.
      dtype: of a variable's accumulator.
      queues: the infeed, which has an element for each micro-batch, and the outfeed.
    """

    model: Callable[..., Tree] | SelfDifferentiating
    optimizer: Any
    replica_reduction: ReplicaReduction
    count: int
    reduction: Reduction
    dtype: Callable[[jax.Array], Any]
    queues: tuple[IPUInfeedQueue, IPUOutfeedQueue]

    def repeat(self, steps: int, carried: Carried, inputs: Sequence[Tree]) -> Carried:
        """The loop over weight updates."""
        infeed = self.queues[0]

        def single(
            variables: Tree, optimizer_state: Tree, state: Tree, *element: Tree, **by_name: Tree
        ) -> Carried:
            optimizer, gradients, state = self.gradients(
                (variables, optimizer_state, state), [*inputs, *element], by_name
            )
            return *_updated(optimizer, gradients, variables, optimizer_state), state

        def accumulated(
            variables: Tree, optimizer_state: Tree, state: Tree, done: Tree
        ) -> tuple[Tree, ...]:
            sums, state = self.sums((variables, optimizer_state, state, done), inputs)
            optimizer = reduced(self.optimizer, self.replica_reduction)
            return *_updated(optimizer, sums, variables, optimizer_state), state, done + 1

        if self.count == 1:
            return loops.repeat(steps, single, list(carried), infeed)
        return loops.repeat(steps, accumulated, [*carried, jnp.int32(0)])[:3]

    def gradients(
        self, carried: Carried, element: Sequence[Tree], by_name: dict[str, Tree]
    ) -> tuple[Any, Tree, Tree]:
        """The optimizer, gradients of one micro-batch, the new state; sends what there is to send.

        Args:
          carried: variables, the optimizer's state as it was before the update, untrained state.
          element: the inputs, and what the infeed gives by position.
          by_name: what it gives by keyword.
        """
        variables, optimizer_state, state = carried
        before = [] if state is None else [state]
        if isinstance(self.model, SelfDifferentiating):
            gradients, output = self.model.gradients(
                variables, optimizer_state, *before, *element, **by_name
            )
            return self._reported(self.optimizer, gradients, variables, output)
        model = self.model
        optimizers: list[Any] = []  # no arrays, which differentiation could hand on

        def loss_of(variables: Tree) -> tuple[Any, StepOutput]:
            output = model(variables, *before, *element, **by_name)
            output = output if isinstance(output, StepOutput) else StepOutput(output)
            optimizers.append(self.optimizer if output.optimizer is None else output.optimizer)
            return output.loss, output._replace(optimizer=None)

        (loss, output), gradients = differentiated(loss_of, variables)
        return self._reported(optimizers[-1], gradients, variables, output._replace(loss=loss))

    def _reported(
        self, optimizer: Any, gradients: Tree, variables: Tree, output: StepOutput
    ) -> tuple[Any, Tree, Tree]:
        self.queues[1].enqueue(output.loss if output.send is None else output.send)
        optimizer = reduced(optimizer, self.replica_reduction)
        gradients = without_untrained(gradients, variables)
        return optimizer, mapped_gradients(optimizer, gradients, variables), output.state

    def sums(self, outer: Sequence[Tree], inputs: Sequence[Tree]) -> tuple[Tree, Tree]:
        """The reduced gradients of all micro-batches of an update, and the new state.

        What the outer loop carries, and the number of its steps so far, comes first and goes
        through this loop unchanged: where the data ends in it, that is what there is to go on from.
        """
        method, count = self.reduction, self.count
        running = method is Reduction.RUNNING_MEAN
        zeros = jax.tree.map(lambda v: jnp.zeros(v.shape, self.dtype(v)), outer[0])
        zeros = without_untrained(zeros, outer[0])

        def micro_batch(  # reports call its variables as its parameters
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
            carried = variables, optimizer_state, state
            _, gradients, state = self.gradients(carried, [*inputs, *element], by_name)
            add = functools.partial(added, method=method, count=count, done=number)
            sums = jax.tree.map(add, gradient_sum, gradients)
            last = number + 1 if running else None
            return variables, optimizer_state, before, done, state, sums, last

        initial = [*outer, outer[2], zeros, jnp.int32(0) if running else None]
        final = loops.repeat(count, micro_batch, initial, self.queues[0])
        return final[5], final[4]


def differentiated(loss_of: Callable[[Tree], tuple[Any, Any]], variables: Tree) -> Any:
    """The loss of some variables with what comes beside it, and the gradients of the trained ones.

    Args:
      loss_of: variables -> the loss, and what comes beside it.
      variables: a pytree; leaves that are neither of float nor of complex have no gradient.

    Returns:
      `(loss, others), gradients`; the gradient of a leaf that is not trained is None.
    """
    leaves, structure = jax.tree.flatten(variables)
    places = [place for place, leaf in enumerate(leaves) if is_trained(leaf)]

    def loss_of_trained(trained: list[jax.Array]) -> tuple[Any, Any]:
        known = dict(zip(places, trained, strict=True))
        return loss_of(structure.unflatten([known.get(i, x) for i, x in enumerate(leaves)]))

    differentiate = jax.value_and_grad(loss_of_trained, has_aux=True)
    result, found = differentiate([leaves[place] for place in places])
    gradients = dict(zip(places, found, strict=True))
    return result, structure.unflatten([gradients.get(i) for i in range(len(leaves))])


def _updated(optimizer: Any, gradients: Tree, variables: Tree, state: Tree) -> tuple[Tree, Tree]:
    """New variables, and the optimizer's new state."""
    updates, state = apply_gradients(optimizer, gradients, state, variables)
    return apply_updates(variables, updates), state
