"""How long each IPU is occupied, counted on the tree."""

from __future__ import annotations

import collections

import numpy as np

from lowering.errors import InternalError
from lowering.machine.trace.tree import KINDS, Block, Group, Loop, On, Tasks, Trace


def busy(trace: Trace, num_ipus: int) -> np.ndarray:
    """int64 [num_ipus, len(KINDS)]: cycles in which each IPU is occupied, by kind of step.

    Every kind counts, syncs too: their cycles are the cost of the sync itself. Waiting for others
    is no step. Loops and tasks are counted once and multiplied.

    Raises:
      InternalError: a step on an IPU that is not there.
    """
    if isinstance(trace, Loop):
        return busy(trace.body, num_ipus) * trace.count
    total = np.zeros((num_ipus, len(KINDS)), dtype=np.int64)
    if isinstance(trace, Block):
        _check(int(trace.ipu.max(initial=0)), num_ipus)
        np.add.at(total, (trace.ipu, trace.kind), trace.cycles)
        return total
    if isinstance(trace, On):
        _check(trace.ipu, num_ipus)
        total[trace.ipu] = busy(trace.body, num_ipus).sum(axis=0)
        return total
    for part, count in _parts(trace):
        total += busy(part, num_ipus) * count
    return total


def _check(ipu: int, num_ipus: int) -> None:
    if ipu >= num_ipus:
        raise InternalError(f"a step on IPU {ipu} of {num_ipus}")


def _parts(trace: Group | Tasks) -> list[tuple[Trace, int]]:
    """The different children or bodies, and how often each is there."""
    if isinstance(trace, Group):
        runs = collections.Counter(map(id, trace.children))
        return [(child, runs[key]) for key, child in {id(c): c for c in trace.children}.items()]
    counts = np.bincount(trace.which, minlength=len(trace.bodies)).tolist()
    return list(zip(trace.bodies, counts, strict=True))
