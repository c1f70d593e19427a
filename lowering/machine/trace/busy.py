"""How long each IPU is occupied, counted on the tree."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lowering.errors import InternalError
from lowering.machine.trace.tree import KINDS, Block, On, Trace, parts


def _kind(block: Block) -> np.ndarray:
    return block.kind


def busy(
    trace: Trace,
    num_ipus: int,
    columns: int = len(KINDS),
    column_of: Callable[[Block], np.ndarray] = _kind,
) -> np.ndarray:
    """int64 [num_ipus, columns]: cycles in which each IPU is occupied, by kind of step.

    Every kind counts, syncs too: their cycles are the cost of the sync itself. Waiting for others
    is no step. Loops and tasks are counted once and multiplied.

    Args:
      trace: the steps.
      num_ipus: how many IPUs there are.
      columns: how many there are, if steps are told apart by something else than their kinds.
      column_of: what that is: gives for each step of a block its column.

    Raises:
      InternalError: a step on an IPU that is not there.
    """
    total = np.zeros((num_ipus, columns), dtype=np.int64)
    if isinstance(trace, Block):
        _check(int(trace.ipu.max(initial=0)), num_ipus)
        np.add.at(total, (trace.ipu, column_of(trace)), trace.cycles)
        return total
    if isinstance(trace, On):
        _check(trace.ipu, num_ipus)
        total[trace.ipu] = busy(trace.body, num_ipus, columns, column_of).sum(axis=0)
        return total
    for part, count in parts(trace):
        total += busy(part, num_ipus, columns, column_of) * count
    return total


def _check(ipu: int, num_ipus: int) -> None:
    if ipu >= num_ipus:
        raise InternalError(f"a step on IPU {ipu} of {num_ipus}")
