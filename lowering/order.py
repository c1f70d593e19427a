"""Putting things in order that need each other."""

from __future__ import annotations

from collections.abc import Sequence


def in_order(needs: Sequence[Sequence[int]]) -> list[int]:
    """Numbers in their order, but for those that earlier ones need, which go first.

    Args:
      needs: for each number, which others must come before it; none needs itself in the end.
    """
    placed: dict[int, None] = {}
    waiting = list(reversed(range(len(needs))))
    while waiting:
        number = waiting[-1]
        missing = [need for need in needs[number] if need not in placed]
        if missing and number not in placed:
            waiting.extend(reversed(missing))
        else:
            placed.setdefault(waiting.pop())
    return list(placed)
