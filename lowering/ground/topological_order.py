"""A stable topological order."""

from __future__ import annotations

from collections.abc import Sequence


def sort_by_needs(needs: Sequence[Sequence[int]]) -> list[int]:
    """Returns numbers in ascending order, except that each comes after those that it needs.

    Args:
      needs: for each number, the numbers that must come before it; there are no cycles.
    """
    ordered: dict[int, None] = {}
    waiting = list(reversed(range(len(needs))))
    while waiting:
        number = waiting[-1]
        missing = [need for need in needs[number] if need not in ordered]
        if missing and number not in ordered:
            waiting.extend(reversed(missing))
        else:
            ordered.setdefault(waiting.pop())
    return list(ordered)
