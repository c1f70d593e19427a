"""Where the cycles of a program go, by IPU and number of the operation."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from lowering.machine.kernels.totals import Numbers, Total

Totals = dict[tuple[int, int], Total]


class Account:
    """Adds up totals, each as often as what it is in runs.

    Attributes:
      totals: what has been found so far.
      numbers: gives signatures of operations their numbers.
    """

    def __init__(self) -> None:
        self.totals: Totals = {}
        self.numbers = Numbers()
        self._times = 1.0

    def add(self, ipu: int, number: int, total: Total) -> None:
        """Something runs once each time that what is around it does."""
        known = self.totals.setdefault((ipu, number), total.none_yet())
        known.add(total, self._times)

    def include(self, totals: Totals) -> None:
        """What was counted `apart` counts after all."""
        for key, total in totals.items():
            self.totals.setdefault(key, total.none_yet()).add(total)

    @contextlib.contextmanager
    def repeated(self, times: int) -> Generator[None]:
        """Whatever is added inside runs so often each time that what is around it does."""
        before, self._times = self._times, self._times * times
        yield
        self._times = before

    @contextlib.contextmanager
    def apart(self) -> Generator[Totals]:
        """Whatever is added inside goes to totals of its own."""
        before, self.totals = self.totals, {}
        yield self.totals
        self.totals = before
