"""The reduction of a Keras model's untrained variables over replicas."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.operators import cross_replica_mean, cross_replica_sum, replication_index
from ipujax.training import Tree
from lowering import jaxpr

Arrays = list[jax.Array]

# The offset between the seeds of replicas, where the number of draws depends on the data.
_FAR_APART = (0, 1 << 20)


@dc.dataclass(frozen=True)
class UntrainedVariables:
    """The untrained variables of a Keras model on several replicas.

    Attributes:
      replicas: the number of copies of the model.
      seeds: positions of the states of seed generators among the non-trainable variables.
    """

    replicas: int
    seeds: tuple[int, ...]

    @staticmethod
    def average_non_trainable(variables: Arrays) -> Arrays:
        """Averages non-trainable variables, such as moving statistics, over replicas.

        A variable that is neither of float nor of complex has the first replica's value.
        """
        return [
            cross_replica_mean(variable) if _is_inexact(variable) else variable
            for variable in variables
        ]

    @staticmethod
    def sum_metrics(old_values: Arrays, new_values: Arrays) -> Arrays:
        """Adds up the changes of metrics' variables, totals and counts, over replicas."""
        return [
            old + cross_replica_sum(new - old)
            for old, new in zip(old_values, new_values, strict=True)
        ]

    def offset_random_draws(self, step: Callable[..., tuple[Arrays, Tree]]) -> Callable[..., Any]:
        """Returns a step whose replicas draw the numbers that one replica would draw in turn.

        A seed generator counts its draws. Replica r of R begins behind the draws of the r replicas
        before it, and skips those of the others.

        Args:
          step: non-trainable variables and others -> new non-trainable variables, and others.
        """
        if self.replicas == 1 or not self.seeds:
            return step

        def step_with_offset_seeds(untrained: Arrays, *arguments: Tree) -> tuple[Arrays, Tree]:
            leaves, structure = jax.tree.flatten((untrained, arguments))
            results: list[Any] = []

            def step_on_leaves(*arrays: jax.Array) -> list[jax.Array]:
                untrained, arguments = structure.unflatten(arrays)
                output_leaves, output_structure = jax.tree.flatten(step(untrained, *arguments))
                results.append(output_structure)
                return output_leaves

            closed = jaxpr.trace_flat(step_on_leaves, [jax.typeof(x) for x in leaves])
            draws = _count_draws(closed, self.seeds)
            for position in self.seeds:
                leaves[position] += replication_index().astype(jnp.uint32) * draws[position]
            new, outputs = results[-1].unflatten(
                jaxpr.run_equations(closed.jaxpr, closed.consts, leaves)
            )
            for position in self.seeds:
                new[position] = untrained[position] + self.replicas * draws[position]
            return new, outputs

        return step_with_offset_seeds


def _count_draws(closed: jaxpr.ClosedJaxpr, seeds: Sequence[int]) -> dict[int, np.ndarray]:
    """Returns how much a step adds to each seed, where that does not depend on the data."""
    draws: dict[int, np.ndarray] = {}
    for position in seeds:
        is_used = [i == position for i in range(len(closed.out_avals))]
        pruned, reads = jaxpr.prune_unused(closed, is_used)
        aval = closed.in_avals[position]
        if reads not in ([], [position]):
            draws[position] = np.array(_FAR_APART, aval.dtype)
            continue
        with jax.ensure_compile_time_eval():
            zeros = [jnp.zeros(aval.shape, aval.dtype) for _ in reads]
            drawn = jaxpr.run_equations(pruned.jaxpr, pruned.consts, zeros)
        draws[position] = np.asarray(drawn[0])
    return draws


def _is_inexact(array: jax.Array) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.inexact))
