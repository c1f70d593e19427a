"""The iterations of a loop by what they run, where a counter decides between branches."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from lowering.machine import trace as tr
from lowering.machine.program_tree import ProgramNode

Turns: TypeAlias = np.ndarray
"""int64 [iterations]: the branch that each iteration of a loop takes."""


@dc.dataclass(frozen=True, slots=True, eq=False)
class Iterations:
    """What kinds of iterations a loop has.

    Attributes:
      kinds: of each kind the first iteration, and how many there are.
      which: int64 [iterations], their kinds; of one kind a view that takes no memory.
    """

    kinds: tuple[tuple[int, int], ...]
    which: np.ndarray


def iterations(choices: Sequence[Turns], count: int) -> Iterations:
    """Iterations that take the same branches everywhere are of one kind.

    Args:
      choices: what they take, where that is known.
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
class Ran:
    """One iteration of some kind: its steps, how long it takes, its parts in the program tree."""

    trace: tr.Trace
    cycles: int
    nodes: tuple[ProgramNode, ...]


def looped(loop: Iterations, ran: Sequence[Ran], node: ProgramNode) -> Ran:
    """All iterations of a loop.

    Args:
      loop: what kinds there are.
      ran: one of each.
      node: what stands for the loop in the program tree, without cycles, counts and parts.
    """
    if len(ran) == 1:
        (one,), count = ran, len(loop.which)
        trace = tr.loop(one.trace, count, one.cycles)
        node = dc.replace(node, cycles=one.cycles, count=count, children=one.nodes)
        return Ran(trace, one.cycles * count, (node,))
    periods = np.array([one.cycles for one in ran], dtype=np.int64)
    lengths = periods[loop.which]
    total = int(lengths.sum())
    none = np.full(len(lengths), tr.NONE)
    bodies, start = [one.trace for one in ran], np.cumsum(lengths) - lengths
    trace = tr.tasks(bodies, loop.which, start, none, none, none)
    nodes = tuple(
        dc.replace(node, cycles=one.cycles, count=times, children=one.nodes)
        for one, (_, times) in zip(ran, loop.kinds, strict=True)
    )
    return Ran(trace, total, nodes)
