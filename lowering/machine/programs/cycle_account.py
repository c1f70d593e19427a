"""Totals of the cycles of a program, by IPU and number of the operation."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from lowering.machine.kernels.layouts import OperandTiles
from lowering.machine.kernels.totals import SignatureNumbers, Total, add_runs_of

Totals = dict[tuple[int, int], Total]


class CycleAccount:
    """Totals of operations, each counted as often as the loops around it run.

    Args:
      numbers: gives signatures of operations their numbers.

    Attributes:
      totals: the totals of all operations so far.
    """

    def __init__(self, numbers: SignatureNumbers) -> None:
        self.totals: Totals = {}
        self.numbers = numbers
        self._times = 1.0

    def add_operation(
        self, ipu: int, number: int, total: Total, operand_tiles: OperandTiles = ()
    ) -> None:
        """Adds an operation that runs once in each iteration of the loops around it."""
        add_runs_of(total, self.totals, (ipu, number), self._times, operand_tiles)

    def include_totals(self, totals: Totals) -> None:
        """Adds totals that were counted separately."""
        for key, total in totals.items():
            add_runs_of(total, self.totals, key)

    @contextlib.contextmanager
    def count_repeated(self, times: int) -> Generator[None]:
        """Counts all that is added inside `times` over, for a loop."""
        outer_times, self._times = self._times, self._times * times
        yield
        self._times = outer_times

    @contextlib.contextmanager
    def count_separately(self) -> Generator[Totals]:
        """Counts all that is added inside in separate totals."""
        outer_totals, self.totals = self.totals, {}
        yield self.totals
        self.totals = outer_totals
