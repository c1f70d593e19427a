"""The kinds of iterations of a loop, where a counter decides between branches."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from lowering.machine import trace as tr
from lowering.machine.program_tree import ProgramNode

BranchPerIteration: TypeAlias = np.ndarray
"""int64 [iterations]: the branch that each iteration of a loop takes."""


@dc.dataclass(frozen=True, slots=True, eq=False)
class Iterations:
    """The kinds of iterations of a loop.

    Attributes:
      kinds: the first iteration of each kind, and how many there are.
      which: int64 [iterations], their kinds; of one kind a view that takes no memory.
    """

    kinds: tuple[tuple[int, int], ...]
    which: np.ndarray


def classify_iterations(choices: Sequence[BranchPerIteration], count: int) -> Iterations:
    """Groups the iterations of a loop: those that take the same branches are of one kind.

    Args:
      choices: the branches that they take, for each choice where these are known.
      count: how many iterations there are.
    """
    if not choices or count <= 1:
        return Iterations(((0, count),), np.broadcast_to(np.int64(0), count))
    table = np.stack(choices)
    _, first, which, times = np.unique(
        table, axis=1, return_index=True, return_inverse=True, return_counts=True
    )
    return Iterations(tuple(zip(first.tolist(), times.tolist(), strict=True)), which.reshape(-1))


@dc.dataclass(frozen=True, slots=True, eq=False)
class IterationCost:
    """The cost of one iteration of some kind: its trace, cycles and program tree nodes."""

    trace: tr.Trace
    cycles: int
    nodes: tuple[ProgramNode, ...]


def repeat_iterations(
    loop: Iterations, iteration_costs: Sequence[IterationCost], node: ProgramNode
) -> IterationCost:
    """Returns the cost of all iterations of a loop.

    Args:
      loop: the kinds of iterations.
      iteration_costs: the cost of one iteration of each kind.
      node: the loop's node in the program tree, without cycles, counts and parts.
    """
    if len(iteration_costs) == 1:
        (iteration,), count = iteration_costs, len(loop.which)
        trace = tr.repeat_trace(iteration.trace, count, iteration.cycles)
        node = dc.replace(node, cycles=iteration.cycles, count=count, children=iteration.nodes)
        return IterationCost(trace, iteration.cycles * count, (node,))
    periods = np.array([one.cycles for one in iteration_costs], dtype=np.int64)
    lengths = periods[loop.which]
    total = int(lengths.sum())
    none = np.full(len(lengths), tr.NONE)
    bodies, start = [one.trace for one in iteration_costs], np.cumsum(lengths) - lengths
    trace = tr.build_tasks(bodies, loop.which, start, none, none, none)
    nodes = tuple(
        dc.replace(node, cycles=one.cycles, count=times, children=one.nodes)
        for one, (_, times) in zip(iteration_costs, loop.kinds, strict=True)
    )
    return IterationCost(trace, total, nodes)
