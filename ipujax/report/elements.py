"""How many elements one call of a program takes."""

from __future__ import annotations

import collections

from lowering import ir

_Counts = collections.Counter[str | None]
"""Elements by queue, and micro-batches under None."""


def elements_per_call(program: ir.Program) -> int:
    """How many elements one replica takes from the infeed that gives most.

    Without infeeds, it is the micro-batches of its pipelines. Loops whose trip count only values
    tell count once, and of branches the one that reads most.
    """
    taken: _Counts = collections.Counter()
    _count(program.body, 1, taken)
    streamed = [count for queue, count in taken.items() if queue is not None]
    return max(streamed, default=taken[None])


def _count(body: ir.Sequence, times: int, taken: _Counts) -> None:
    for node in body.steps:
        match node:
            case ir.StreamIn():
                taken[node.queue.name] += times * (node.count or 1)
            case ir.Repeat():
                inside = times * (1 if node.count is None else node.count)
                if node.pipeline is not None:
                    taken[None] += inside
                _count(node.body, inside, taken)
            case ir.Switch():
                _count_branches(node, times, taken)
            case _:
                for own in ir.bodies(node):
                    _count(own.sequence, times, taken)


def _count_branches(node: ir.Switch, times: int, taken: _Counts) -> None:
    most: _Counts = collections.Counter()
    for branch in node.branches:
        own: _Counts = collections.Counter()
        _count(branch.body, times, own)
        most |= own
    taken.update(most)
