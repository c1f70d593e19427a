"""Sums the cycles of a call by kind, name and line of its steps, over the tree of its trace."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lowering import trace


class StepKind(NamedTuple):
    """The kind, name and line that a group of equal steps share.

    Attributes:
      kind: one of `trace.KINDS`.
      name: the operation, without the part after a slash.
      origin: the user's line, or "".
    """

    kind: str
    name: str
    origin: str


class StepAmount(NamedTuple):
    """The cycles and the number of some steps, on all IPUs together."""

    cycles: int
    steps: int


class Total(NamedTuple):
    """The totals of some steps of one kind.

    Attributes:
      name: the name of the steps that take most.
      origin: the user's line of these steps, or "".
      cycles: the cycles of all steps, on all IPUs.
      steps: the number of steps.
      most: the cycles of those that take most.
    """

    name: str
    origin: str
    cycles: int
    steps: int
    most: int

    @classmethod
    def sum_totals(cls, totals: Sequence[Total]) -> Total:
        """Returns the sum of some totals, given largest first."""
        cycles, steps = (
            sum(column) for column in zip(*(part[2:4] for part in totals), strict=True)
        )
        return cls(totals[0].name, totals[0].origin, cycles, steps, totals[0].cycles)

    @property
    def average(self) -> float:
        """The average cycles of a step."""
        return self.cycles / max(self.steps, 1)

    @property
    def largest_share(self) -> float:
        """The share of the most expensive steps in the total cycles."""
        return self.most / max(self.cycles, 1)


def tally_steps(root: trace.Trace) -> dict[StepKind, StepAmount]:
    """Sums the steps of a trace; looks at loops and tasks once and multiplies."""
    times = collections.Counter({id(root): 1})
    cycles, steps = collections.Counter[StepKind](), collections.Counter[StepKind]()
    for node in reversed(_list_children_first(root)):
        for child, count in trace.distinct_children(node):
            times[id(child)] += count * times[id(node)]
        if isinstance(node, trace.Block) and node.num_steps:
            for kind, block_cycles, count in _group_block_steps(node):
                cycles[kind] += block_cycles * times[id(node)]
                steps[kind] += count * times[id(node)]
    return {kind: StepAmount(cycles[kind], steps[kind]) for kind in cycles}


def _list_children_first(root: trace.Trace) -> list[trace.Trace]:
    """Returns every node of a trace once, after the nodes that it consists of."""
    visited: dict[int, trace.Trace] = {}
    todo = [(root, False)]
    while todo:
        node, children_done = todo.pop()
        if id(node) in visited:
            continue
        if children_done:
            visited[id(node)] = node
        else:
            todo.append((node, True))
            todo += [(child, False) for child, _ in trace.distinct_children(node)]
    return list(visited.values())


def _group_block_steps(block: trace.Block) -> Iterator[tuple[StepKind, int, int]]:
    """Yields the kinds of steps of a block, with the cycles and the number of each."""
    keys = block.kind.astype(np.int64) * len(block.names) + block.name
    cycles_of_key = np.zeros(len(trace.KINDS) * len(block.names), dtype=np.int64)
    np.add.at(cycles_of_key, keys, block.cycles)
    counts = np.bincount(keys, minlength=len(cycles_of_key))
    for key in np.flatnonzero(counts).tolist():
        kind, name = divmod(key, len(block.names))
        step_name = block.names[name].partition("/")[0]
        step_kind = StepKind(trace.KINDS[kind], step_name, block.origins[name])
        yield step_kind, int(cycles_of_key[key]), int(counts[key])
