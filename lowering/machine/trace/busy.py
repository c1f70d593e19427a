"""The cycles in which each IPU is busy, counted on the trace tree."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lowering.ground import InternalError
from lowering.machine.trace.trace_tree import KINDS, Block, On, Trace, distinct_children


def _kind_of_steps(block: Block) -> np.ndarray:
    return block.kind


def count_busy_cycles(
    trace: Trace,
    num_ipus: int,
    columns: int = len(KINDS),
    column_of: Callable[[Block], np.ndarray] = _kind_of_steps,
) -> np.ndarray:
    """Counts int64 [num_ipus, columns]: the cycles in which each IPU is busy, by kind of step.

    Every kind counts, syncs too: their cycles are the cost of the sync itself. Waiting for others
    is no step. Loops and tasks are counted once and multiplied.

    Args:
      trace: the steps.
      num_ipus: how many IPUs there are.
      columns: how many columns there are, if steps are not sorted by their kinds.
      column_of: returns the column of each step of a block.

    Raises:
      InternalError: a step on an IPU that does not exist.
    """
    total = np.zeros((num_ipus, columns), dtype=np.int64)
    if isinstance(trace, Block):
        _check_ipu_exists(int(trace.ipu.max(initial=0)), num_ipus)
        np.add.at(total, (trace.ipu, column_of(trace)), trace.cycles)
        return total
    if isinstance(trace, On):
        _check_ipu_exists(trace.ipu, num_ipus)
        total[trace.ipu] = count_busy_cycles(trace.body, num_ipus, columns, column_of).sum(axis=0)
        return total
    for part, count in distinct_children(trace):
        total += count_busy_cycles(part, num_ipus, columns, column_of) * count
    return total


def _check_ipu_exists(ipu: int, num_ipus: int) -> None:
    if ipu >= num_ipus:
        raise InternalError(f"a step on IPU {ipu} of {num_ipus}")
