"""The cycles of a call by kind, name and line of its steps, counted on the tree of its trace."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lowering import trace


class Kind(NamedTuple):
    """Steps that are alike.

    Attributes:
      kind: one of `trace.KINDS`.
      name: what they do, without the part after a slash.
      origin: the user's line, or "".
    """

    kind: str
    name: str
    origin: str


class Amount(NamedTuple):
    """How much there is of them, on all IPUs together."""

    cycles: int
    steps: int


class Total(NamedTuple):
    """Steps of one kind together.

    Attributes:
      name: of those among them that take most.
      origin: the user's line of those, or "".
      cycles: of all, on all IPUs.
      steps: how many.
      most: the cycles of those that take most.
    """

    name: str
    origin: str
    cycles: int
    steps: int
    most: int

    @classmethod
    def of(cls, parts: Sequence[Total]) -> Total:
        """The sum of some, the largest first."""
        cycles, steps = (sum(each) for each in zip(*(part[2:4] for part in parts), strict=True))
        return cls(parts[0].name, parts[0].origin, cycles, steps, parts[0].cycles)

    @property
    def average(self) -> float:
        """Cycles of a step."""
        return self.cycles / max(self.steps, 1)

    @property
    def share(self) -> float:
        """Of those that take most in all."""
        return self.most / max(self.cycles, 1)


def tally(root: trace.Trace) -> dict[Kind, Amount]:
    """Adds up the steps of a trace; loops and tasks are looked at once and multiplied."""
    times = collections.Counter({id(root): 1})
    cycles, steps = collections.Counter[Kind](), collections.Counter[Kind]()
    for node in reversed(_children_first(root)):
        for child, count in trace.parts(node):
            times[id(child)] += count * times[id(node)]
        if isinstance(node, trace.Block) and node.num_steps:
            for kind, spent, count in _alike(node):
                cycles[kind] += spent * times[id(node)]
                steps[kind] += count * times[id(node)]
    return {kind: Amount(cycles[kind], steps[kind]) for kind in cycles}


def _children_first(root: trace.Trace) -> list[trace.Trace]:
    """Every node once, after those that it consists of."""
    seen: dict[int, trace.Trace] = {}
    todo = [(root, False)]
    while todo:
        node, parts_seen = todo.pop()
        if id(node) in seen:
            continue
        if parts_seen:
            seen[id(node)] = node
        else:
            todo.append((node, True))
            todo += [(child, False) for child, _ in trace.parts(node)]
    return list(seen.values())


def _alike(block: trace.Block) -> Iterator[tuple[Kind, int, int]]:
    """The kinds of steps of a block, with the cycles and the number of each."""
    keys = block.kind.astype(np.int64) * len(block.names) + block.name
    spent = np.zeros(len(trace.KINDS) * len(block.names), dtype=np.int64)
    np.add.at(spent, keys, block.cycles)
    counts = np.bincount(keys, minlength=len(spent))
    for key in np.flatnonzero(counts).tolist():
        kind, name = divmod(key, len(block.names))
        title = block.names[name].partition("/")[0]
        alike = Kind(trace.KINDS[kind], title, block.origins[name])
        yield alike, int(spent[key]), int(counts[key])
