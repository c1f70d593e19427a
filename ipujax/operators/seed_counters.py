"""Random draws of replicas whose seeds are counters in the state of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.ground import PyTree
from ipujax.operators.replication import replication_index
from lowering import jaxpr

Arrays = list[jax.Array]

# The offset between the seeds of replicas, where the number of draws depends on the data.
_FAR_APART = (0, 1 << 20)


def offset_seed_counters(
    step: Callable[..., tuple[Arrays, PyTree]], seeds: Sequence[int], replicas: int
) -> Callable[..., tuple[Arrays, PyTree]]:
    """Returns a step whose replicas draw the numbers that one replica would draw in turn.

    A seed generator counts its draws. Replica r of R begins behind the draws of the r replicas
    before it, and skips those of the others.

    Args:
      step: variables and others -> new variables, and others.
      seeds: positions of the states of seed generators among the variables.
      replicas: the number of replicas.
    """

    def step_with_offset_seeds(untrained: Arrays, *arguments: object) -> tuple[Arrays, PyTree]:
        leaves, structure = jax.tree.flatten((untrained, arguments))
        results: list[PyTree] = []

        def step_on_leaves(*arrays: jax.Array) -> list[jax.Array]:
            untrained, arguments = structure.unflatten(arrays)
            output_leaves, output_structure = jax.tree.flatten(step(untrained, *arguments))
            results.append(output_structure)
            return output_leaves

        closed = jaxpr.trace_flat(step_on_leaves, [jax.typeof(x) for x in leaves])
        draws = _count_draws(closed, seeds)
        for position in seeds:
            leaves[position] += replication_index().astype(jnp.uint32) * draws[position]
        new, outputs = results[-1].unflatten(
            jaxpr.run_equations(closed.jaxpr, closed.consts, leaves)
        )
        for position in seeds:
            new[position] = untrained[position] + replicas * draws[position]
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
