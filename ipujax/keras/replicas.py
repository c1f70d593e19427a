"""What several replicas make of a model's untrained arrays."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.cross_replica_ops import cross_replica_mean, cross_replica_sum
from ipujax.replication_ops import replication_index
from ipujax.training.state import Tree
from lowering import jaxpr

Arrays = list[jax.Array]

# Where the number of draws depends on the data, replicas begin so many apart.
_FAR_APART = (0, 1 << 20)


@dc.dataclass(frozen=True)
class Untrained:
    """A model's untrained arrays, and what they are.

    Attributes:
      replicas: copies of the model.
      seeds: positions of the states of seed generators among the non-trainable variables.
    """

    replicas: int
    seeds: tuple[int, ...]

    @staticmethod
    def together(after: Arrays) -> Arrays:
        """Non-trainable variables as all replicas leave them: moving statistics are averaged.

        What is neither of float nor of complex is the first replica's.
        """
        return [cross_replica_mean(x) if _has_mean(x) else x for x in after]

    @staticmethod
    def added_up(before: Arrays, after: Arrays) -> Arrays:
        """Metrics' variables: totals and counts of what all replicas have seen."""
        return [old + cross_replica_sum(new - old) for old, new in zip(before, after, strict=True)]

    def drawing_apart(self, step: Callable[..., tuple[Arrays, Tree]]) -> Callable[..., Any]:
        """A step whose replicas draw what one replica would draw for the same batches in turn.

        A seed generator counts its draws. Replica r of R begins behind the draws of the r before
        it, and leaves out those of the others.

        Args:
          step: non-trainable variables and others -> new non-trainable variables, and others.
        """
        if self.replicas == 1 or not self.seeds:
            return step

        def apart(untrained: Arrays, *others: Tree) -> tuple[Arrays, Tree]:
            leaves, structure = jax.tree.flatten((untrained, others))
            results: list[Any] = []

            def flat(*arrays: jax.Array) -> list[jax.Array]:
                untrained, others = structure.unflatten(arrays)
                made, made_structure = jax.tree.flatten(step(untrained, *others))
                results.append(made_structure)
                return made

            closed = jaxpr.trace_flat(flat, [jax.typeof(x) for x in leaves])
            draws = _draws(closed, self.seeds)
            for position in self.seeds:
                leaves[position] += replication_index().astype(jnp.uint32) * draws[position]
            new, rest = results[-1].unflatten(
                jaxpr.run_equations(closed.jaxpr, closed.consts, leaves)
            )
            for position in self.seeds:
                new[position] = untrained[position] + self.replicas * draws[position]
            return new, rest

        return apart


def _draws(closed: jaxpr.ClosedJaxpr, seeds: Sequence[int]) -> dict[int, np.ndarray]:
    """What a step adds to each seed: as many draws as it makes, whatever the data."""
    draws: dict[int, np.ndarray] = {}
    for position in seeds:
        used = [i == position for i in range(len(closed.out_avals))]
        pruned, reads = jaxpr.without_unused(closed, used)
        aval = closed.in_avals[position]
        if reads not in ([], [position]):
            draws[position] = np.array(_FAR_APART, aval.dtype)
            continue
        with jax.ensure_compile_time_eval():
            zeros = [jnp.zeros(aval.shape, aval.dtype) for _ in reads]
            drawn = jaxpr.run_equations(pruned.jaxpr, pruned.consts, zeros)
        draws[position] = np.asarray(drawn[0])
    return draws


def _has_mean(array: jax.Array) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.inexact))
