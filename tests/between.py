"""Orders with tasks that compute again, offload and load."""

from __future__ import annotations

from collections.abc import Sequence

from lowering import schedules

EXTRAS = ("R", "OL", "OLR", "")
"""What the first stages have; the next ones have the same again."""


def add_between(base: schedules.Schedule, extras: Sequence[str] = EXTRAS) -> dict[int, list[str]]:
    """The orders of a schedule with O behind F, and L and R in front of B, in some stages."""
    orders: dict[int, list[str]] = {ipu: [] for ipu in base.layout.all_ipus}
    for task in (task for tick in base.ticks for task in tick):
        stage, phase, number = task
        own = extras[stage % len(extras)]
        before = [letter for letter in own if letter in "LR" and phase == "B"]
        after = ["O"] if "O" in own and phase == "F" else []
        for ipu in base.layout.ipus_of(task):
            orders[ipu] += [f"{stage}{letter}{number}" for letter in (*before, phase, *after)]
    return orders


def between(stages: int, micro_batches: int) -> dict[int, list[str]]:
    """1F1B with such tasks, for `build`."""
    return add_between(schedules.one_f_one_b(stages, micro_batches))
