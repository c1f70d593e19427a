"""How long each IPU is occupied, counted on the tree."""

from __future__ import annotations

import numpy as np

from lowering.errors import InternalError
from lowering.machine.trace.tree import KINDS, Block, On, Trace, parts


def busy(trace: Trace, num_ipus: int) -> np.ndarray:
    """int64 [num_ipus, len(KINDS)]: cycles in which each IPU is occupied, by kind of step.

    Every kind counts, syncs too: their cycles are the cost of the sync itself. Waiting for others
    is no step. Loops and tasks are counted once and multiplied.

    Raises:
      InternalError: a step on an IPU that is not there.
    """
    total = np.zeros((num_ipus, len(KINDS)), dtype=np.int64)
    if isinstance(trace, Block):
        _check(int(trace.ipu.max(initial=0)), num_ipus)
        np.add.at(total, (trace.ipu, trace.kind), trace.cycles)
        return total
    if isinstance(trace, On):
        _check(trace.ipu, num_ipus)
        total[trace.ipu] = busy(trace.body, num_ipus).sum(axis=0)
        return total
    for part, count in parts(trace):
        total += busy(part, num_ipus) * count
    return total


def _check(ipu: int, num_ipus: int) -> None:
    if ipu >= num_ipus:
        raise InternalError(f"a step on IPU {ipu} of {num_ipus}")
