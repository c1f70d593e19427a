"""The reduction of a Keras model's untrained variables over replicas."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable

import jax
import jax.numpy as jnp

from ipujax.operators import cross_replica_mean, cross_replica_sum, offset_seed_counters
from ipujax.training import Tree

Arrays = list[jax.Array]


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

        A variable of integers or booleans gets the first replica's value.
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

    def offset_random_draws(
        self, step: Callable[..., tuple[Arrays, Tree]]
    ) -> Callable[..., tuple[Arrays, Tree]]:
        """Returns a step whose replicas draw the numbers that one replica would draw in turn.

        Args:
          step: non-trainable variables and others -> new non-trainable variables, and others.
        """
        if self.replicas == 1 or not self.seeds:
            return step

        return offset_seed_counters(step, self.seeds, self.replicas)


def _is_inexact(array: jax.Array) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.inexact))
