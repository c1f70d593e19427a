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
    known: dict[int, np.ndarray] = {}  # by the identity of the trace: kernels share theirs

    def count(part: Trace) -> np.ndarray:
        if id(part) not in known:
            known[id(part)] = count_anew(part)
        return known[id(part)]

    def count_anew(part: Trace) -> np.ndarray:
        total = np.zeros((num_ipus, columns), dtype=np.int64)
        if isinstance(part, Block):
            _check_ipu_exists(int(part.ipu.max(initial=0)), num_ipus)
            np.add.at(total, (part.ipu, column_of(part)), part.cycles)
            return total
        if isinstance(part, On):
            _check_ipu_exists(part.ipu, num_ipus)
            total[part.ipu] = count(part.body).sum(axis=0)
            return total
        for child, times in distinct_children(part):
            total += count(child) * times
        return total

    return count(trace)


def _check_ipu_exists(ipu: int, num_ipus: int) -> None:
    if ipu >= num_ipus:
        raise InternalError(f"a step on IPU {ipu} of {num_ipus}")
